"""Messages of ranks about the resizes of a malleable step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

import pytest

from pliant.core.values.sizes import parse_sizes
from pliant.nodectl.shim.event_loop import EventLoop
from pliant.nodectl.shim.steps.resizer import StepResizer


@pytest.mark.parametrize(
    "message",
    [
        {"op": "coordinator"},
        {"op": "coordinator", "sizes": "1-4"},
        {"op": "answer", "resize": 1},
        {"op": "outcome", "resize": 1},
    ],
)
def test_a_message_without_its_fields_fails_the_step_only(message: Mapping[str, Any]) -> None:
    step, calls = Mock(places=[0], worlds={}, number=1, is_ending=False), Mock()
    resizer = StepResizer(EventLoop(), step, parse_sizes("1-4"), int, calls)
    resizer.on_control(Mock(resize=0), message)
    (code, number, reason) = step.fail.call_args.args
    assert (code, number) == (1, 0)
    assert message["op"] in reason


def test_a_message_that_is_unknown_here_is_ignored() -> None:
    step, calls = Mock(places=[0], worlds={}, number=1, is_ending=False), Mock()
    resizer = StepResizer(EventLoop(), step, parse_sizes("1-4"), int, calls)
    for message in ({}, {"op": "later"}, {"op": ["a"]}, {"op": "begun", "resize": 3}):
        resizer.on_control(Mock(resize=0), message)
    assert not step.fail.called
