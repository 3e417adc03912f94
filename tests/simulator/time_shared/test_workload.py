"""The workloads of the paper: how many jobs there are, and when they are submitted."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import Any

import pytest

from pliant.simulator.inputs.workload import WorkloadError
from pliant.simulator.time_shared.settings import MB
from pliant.simulator.time_shared.workload import (
    HOUR_S,
    PROGRAMS,
    TRACES,
    ChenWorkload,
    submission_time,
)


@pytest.mark.parametrize(
    ("trace", "median", "last"), [(1, 1568, 3588), (2, 1495, 3589), (3, 1205, 3589), (4, 286, 3559)]
)
def test_submission_times_are_those_of_the_printed_rate(
    trace: int, median: float, last: float
) -> None:
    sigma, number = TRACES[trace]
    assert submission_time(0.5, sigma) == pytest.approx(median, abs=1)
    # The mean of the largest of so many draws; the paper prints 3581 to 3589 s.
    means = statistics.fmean(
        max(submission_time(part, sigma) for part in _draws(seed, number)) for seed in range(40)
    )
    assert means == pytest.approx(last, abs=20)


def _draws(seed: int, number: int) -> list[float]:
    import random

    rng = random.Random(seed)
    return [rng.random() for _ in range(number)]


@pytest.mark.parametrize("group", PROGRAMS)
@pytest.mark.parametrize("trace", TRACES)
def test_traces_have_the_printed_numbers_of_jobs(group: int, trace: int) -> None:
    jobs = ChenWorkload(group, trace).make(1, 32)
    assert len(jobs) == TRACES[trace][1]
    assert {job.program for job in jobs} == {name for name, *_ in PROGRAMS[group]}
    assert {job.home for job in jobs} == set(range(32))
    assert all(0 < job.submit <= HOUR_S for job in jobs)
    assert all(one.submit <= two.submit for one, two in pairwise(jobs))
    assert jobs == ChenWorkload(group, trace).make(1, 32)
    assert jobs != ChenWorkload(group, trace).make(2, 32)


def test_a_share_of_the_jobs_has_the_same_times_and_programs() -> None:
    all_jobs = ChenWorkload(1, 3).make(1, 32)
    thinned = ChenWorkload(1, 3, share=0.2).make(1, 32)
    assert 60 < len(thinned) < 170
    assert set(thinned) <= set(all_jobs)


def test_all_jobs_can_have_the_same_demand() -> None:
    assert {job.demand for job in ChenWorkload(1, 3, demand_mb=250.0).make(1, 32)} == {250 * MB}


@pytest.mark.parametrize(
    ("name", "value"),
    [("group", 3), ("trace", 6), ("jobs", -1), ("share", 0.0), ("demand_mb", -1.0)],
)
def test_wrong_parameters_are_named(name: str, value: Any) -> None:
    with pytest.raises(WorkloadError, match=name):
        ChenWorkload(**{name: value})
