"""Streit's job sets: the stated means, estimates above run times, and dependent sizes."""

from __future__ import annotations

from statistics import fmean

import pytest

from pliant.simulator.inputs.models import make
from pliant.simulator.inputs.workload import WorkloadError


@pytest.mark.parametrize(
    ("given", "size", "time", "estimate", "gap"),
    [
        ({}, 13.49, 2835.83, 6697.88, 628.19),
        (
            {"gap": 1277.34, "mean_size": 10.11, "mean_time": 6697.88, "mean_estimate": 21634},
            10.11,
            6697.88,
            21634,
            1277.34,
        ),
    ],
)
def test_the_means_are_those_of_the_table(
    given: dict[str, float], size: float, time: float, estimate: float, gap: float
) -> None:
    jobs = make("streit", {**given, "jobs": 40_000, "seed": 1}).jobs
    assert fmean(job.requested for job in jobs) == pytest.approx(size, rel=0.02)
    assert fmean(job.runtime for job in jobs) == pytest.approx(time, rel=0.03)
    assert fmean(job.estimate_s or 0 for job in jobs) == pytest.approx(estimate, rel=0.03)
    assert jobs[-1].submit / len(jobs) == pytest.approx(gap, rel=0.02)


def test_jobs_fit_the_machine_and_their_estimates() -> None:
    for job in make("streit", {"jobs": 2000, "seed": 2}).jobs:
        assert 1 <= job.requested <= 96
        assert job.estimate_s is not None
        assert 1 <= job.runtime <= job.estimate_s * (1 + 1e-12)


def test_a_negative_correlation_lowers_the_load() -> None:
    def load(correlation: float) -> float:
        given = {"jobs": 5000, "seed": 3, "correlation": correlation}
        return sum(job.work for job in make("streit", given).jobs)

    assert load(-0.4) < load(-0.2) < load(0) < load(0.4)


@pytest.mark.parametrize(
    ("key", "value"),
    [("jobs", 0), ("gap", -1), ("mean_size", 96), ("mean_time", 7000), ("mean_estimate", 200),
     ("correlation", 2)],
)  # fmt: skip
def test_invalid_parameters_are_named(key: str, value: float) -> None:
    with pytest.raises(WorkloadError, match=f"streit: {key}"):
        make("streit", {key: value})
