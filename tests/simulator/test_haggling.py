"""Applications that haggle: a round of talks may come to nothing, but not for ever."""

from __future__ import annotations

import pytest

from corekit.simkit import by_id, job, run
from pliant.core.transitions import resize_open_close
from pliant.simulator.inputs.simulation_errors import NoProgressError
from pliant.simulator.run import simulation_loop

#: Job 3 needs what 1 and 2 give together; each meets every offer but a last word half-way.
JOBS = [job(1, 0.0, "2-7", 100.0), job(2, 1.0, "1-10", 300.0), job(3, 2.0, "3-5", 100.0)]


def test_donors_that_are_asked_in_turn_are_left_alone_after_a_few_times() -> None:
    result = run(JOBS, 12, strategy="max-fit", answers="countering")
    assert set(by_id(result)) == {1, 2, 3}
    assert result.metrics["negotiations"] < 60


def test_without_that_they_would_be_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resize_open_close, "MAX_FAILED_NEGOTIATIONS", 1_000_000)
    monkeypatch.setattr(simulation_loop, "MAX_ROUNDS", 500)
    with pytest.raises(NoProgressError):
        run(JOBS, 12, strategy="max-fit", answers="countering")
