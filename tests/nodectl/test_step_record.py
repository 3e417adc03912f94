"""Steps of scripts, as a shim of a user may report them."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest

from pliant.nodectl.step_record import MAX_NAME, MAX_SIZES, MAX_STEPS, StepRecord, read_steps

STEP = StepRecord(1, "solve", 4, 5.0, 7.0, 0, 9, ((5.0, 2), (6.0, 4)), 6.0)


def test_steps_are_read_as_they_were_written() -> None:
    sent = json.loads(json.dumps([asdict(STEP)]))
    assert read_steps(sent) == (STEP,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": 0},
        {"name": "x" * (MAX_NAME + 1)},
        {"name": 5},
        {"processors": True},
        {"start": math.nan},
        {"end": "now"},
        {"code": 1 << 40},
        {"signal": -1},
        {"sizes": [[5.0, 1]] * (MAX_SIZES + 1)},
        {"sizes": [[5.0, 0]]},
        {"sizes": [[math.nan, 2]]},
        {"processor_s": math.inf},
    ],
)
def test_damaged_steps_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="step"):
        read_steps([asdict(STEP) | wrong])


def test_a_step_of_an_older_version_has_no_sizes() -> None:
    sent = asdict(STEP)
    del sent["sizes"], sent["processor_s"]
    (step,) = read_steps([sent])
    assert (step.sizes, step.processor_s) == ((), 0.0)


def test_the_number_of_steps_is_limited() -> None:
    assert len(read_steps([asdict(STEP)] * MAX_STEPS)) == MAX_STEPS
    with pytest.raises(ValueError, match="a list of steps"):
        read_steps([asdict(STEP)] * (MAX_STEPS + 1))
