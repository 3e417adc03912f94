"""Ghafoor's maximum fit on the calibrated workload of his chapter 6 (Table 6.2).

Expected is what the rule gives on Poisson arrivals every 20 s in a separate simulation of it, as
the paper does not say when its jobs arrive. Printed are 0.926 with 599 talks, 1.000 with 306.
"""

from __future__ import annotations

from statistics import fmean

import pytest

from pliant.simulator import Settings, simulate
from pliant.simulator.inputs.models import ghafoor


def measured(malleable: int, seed: int) -> tuple[float, float]:
    made = ghafoor(jobs=1000, gap=20, malleable=malleable, spread="random", seed=seed)
    found = simulate(made.jobs, Settings(256, strategy="max-fit", keep_jobs=False)).metrics
    return found["utilization_work"], found["negotiations"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("malleable", "seeds", "utilization", "talks"),
    # One workload differs from another by far more if few jobs are malleable.
    [(10, 10, 0.923, 621), (100, 3, 0.996, 314.5)],
)
def test_utilization_and_negotiations_are_those_of_the_rule(
    malleable: int, seeds: int, utilization: float, talks: float
) -> None:
    runs = [measured(malleable, seed) for seed in range(1, seeds + 1)]
    assert fmean(used for used, _ in runs) == pytest.approx(utilization, abs=0.01)
    assert fmean(talked for _, talked in runs) == pytest.approx(talks, rel=0.1)


@pytest.mark.slow
def test_the_more_is_malleable_the_more_is_used() -> None:
    rigid, some, all_ = (measured(share, 1)[0] for share in (0, 10, 100))
    assert rigid < some < all_
