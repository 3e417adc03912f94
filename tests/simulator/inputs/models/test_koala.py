"""The workloads of KOALA: the points of the paper, the draws, and parameters that make no sense."""

from __future__ import annotations

import pytest

from pliant.simulator import SimJob, WorkloadError
from pliant.simulator.inputs.models import make


def jobs(**values: object) -> list[SimJob]:
    return make("koala", {"seed": 1, **values}).jobs


def seconds(job: SimJob, processors: int) -> float:
    return job.work / job.speedup(processors)


def test_run_times_have_the_points_of_the_paper() -> None:
    ft = next(job for job in jobs() if job.sizes.max == 32)
    gadget = next(job for job in jobs() if job.sizes.max == 46)
    assert [seconds(ft, n) for n in (2, 32)] == pytest.approx([120, 60])
    assert [seconds(gadget, n) for n in (2, 46)] == pytest.approx([600, 240])
    assert list(ft.sizes.values) == [2, 4, 8, 16, 32]
    assert (gadget.sizes.min, gadget.sizes.max) == (2, 46)


def test_a_smaller_size_may_have_the_best_time_already() -> None:
    ft = next(job for job in jobs(ft_best=8) if job.sizes.max == 32)
    assert [seconds(ft, n) for n in (2, 8, 32)] == pytest.approx([120, 60, 60])


def test_other_gaps_and_kinds_keep_the_applications() -> None:
    slow, fast, mixed = jobs(), jobs(gap=30), jobs(rigid=0.5)
    assert [job.submit for job in slow[:3]] == [0, 120, 240]
    assert [job.submit for job in fast[:3]] == [0, 30, 60]
    assert [job.work for job in slow] == [job.work for job in fast] == [job.work for job in mixed]
    rigid = [job for job in mixed if not job.malleable]
    assert 120 < len(rigid) < 180
    assert {job.sizes.max for job in rigid} == {2}
    assert all(job.malleable for job in slow)


@pytest.mark.parametrize("given", [{"jobs": 0}, {"gap": -1}, {"rigid": 2}, {"ft_best": 2}])
def test_parameters_are_checked(given: dict[str, object]) -> None:
    with pytest.raises(WorkloadError, match=next(iter(given))):
        jobs(**given)
