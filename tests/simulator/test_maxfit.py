"""Ghafoor's maximum fit on the calibrated workload of his chapter 6 (Table 6.2)."""

from __future__ import annotations

import pytest

from pliant.simulator import Settings, simulate
from pliant.simulator.models import ghafoor


@pytest.mark.slow
@pytest.mark.parametrize(
    ("malleable", "utilization", "talks"),
    # Printed: 0.926 and 599 talks; 1.000 and 306 talks. Arrivals are ours.
    [(10, (0.90, 0.95), (400, 800)), (100, (0.99, 1.0), (270, 350))],
)
def test_utilization_and_talks_are_near_the_printed_ones(
    malleable: int, utilization: tuple[float, float], talks: tuple[int, int]
) -> None:
    made = ghafoor(jobs=1000, gap=20, malleable=malleable, spread="random", seed=1)
    found = simulate(made.jobs, Settings(256, strategy="max-fit")).metrics
    assert utilization[0] <= found["utilization_work"] <= utilization[1]
    assert talks[0] <= found["negotiations"] <= talks[1]
    fixed = ghafoor(jobs=1000, gap=20, seed=1)
    rigid = simulate(fixed.jobs, Settings(256, strategy="max-fit")).metrics
    assert found["utilization_work"] > rigid["utilization_work"]
