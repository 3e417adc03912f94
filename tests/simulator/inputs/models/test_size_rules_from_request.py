"""Sizes and speedups relative to what each job requested, and what they leave as it was."""

from __future__ import annotations

from random import Random

import pytest

from corekit.simkit import rigid
from pliant.core.values.sizes import SizesError, parse_sizes
from pliant.core.values.speedup import Downey, SpeedupError
from pliant.simulator.inputs import models
from pliant.simulator.inputs.workload import Workload, WorkloadError


@pytest.mark.parametrize(
    ("rule", "requested", "sizes"),
    [
        ("p/2-2p", 8, "4-16"),
        ("p/2-2p", 1, "1-2"),
        ("p/2-2p", 7, "3-14"),
        ("1-p", 6, "1-6"),
        ("p", 6, "6"),
        ("3p/2-4p:pow2", 4, "6-16:pow2"),
        ("p/4-p:x2", 16, "4-16:x2"),
        ("2-64:pow2", 5, "2-64:pow2"),
        ("{1,2,4}", 5, "{1,2,4}"),
    ],
)
def test_sizes_by_the_request(rule: str, requested: int, sizes: str) -> None:
    assert models.parse_size_rule(rule)(requested) == parse_sizes(sizes)


@pytest.mark.parametrize("rule", ["2p-p", "p/0-p", "pp-2p", "x", "", "p-", "0-p"])
def test_wrong_sizes_are_refused(rule: str) -> None:
    with pytest.raises(SizesError):
        models.parse_size_rule(rule)


def test_speedups_by_the_request() -> None:
    assert models.parse_speedup_rule("downey:p,1")(12) == Downey(12.0, 1.0)
    assert models.parse_speedup_rule("downey:2p,0.5")(3) == Downey(6.0, 0.5)
    assert models.parse_speedup_rule("amdahl:0.9")(3)(1) == 1.0
    with pytest.raises(SpeedupError):
        models.parse_speedup_rule("fast:p")


def test_a_malleable_job_takes_as_long_as_before_on_its_request() -> None:
    base = Workload([rigid(1, 0, 8, 100), rigid(2, 0, 3, 50)], 12)
    made = models.make_malleable(
        base,
        100,
        models.parse_size_rule("p/2-2p"),
        "even",
        Random(0),
        models.parse_speedup_rule("downey:p,1"),
    )
    assert [str(job.sizes) for job in made.jobs] == ["4-12", "1-6"]
    assert [job.runtime for job in made.jobs] == pytest.approx([100.0, 50.0])
    first = made.jobs[0]
    assert first.work / first.speedup(4) < 200, "half of them take less than twice as long"
    assert first.work / first.speedup(12) > 100 * 8 / 12, "more of them are less efficient"


def test_sizes_that_the_machine_cannot_give_are_refused() -> None:
    base = Workload([rigid(1, 0, 8, 100)], 12)
    rule = models.parse_size_rule("2p-4p")
    with pytest.raises(WorkloadError, match="requested 8: the machine has only 12"):
        models.make_malleable(base, 100, rule, "even", Random(0))
