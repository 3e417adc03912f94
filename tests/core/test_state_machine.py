"""The tables of the state machine: each event and each timer has a handler."""

from __future__ import annotations

from typing import get_args

from pliant.core import events
from pliant.core.model.timers import TimerKind
from pliant.core.state_machine import EVENT_HANDLERS, TIMER_HANDLERS


def test_each_event_has_a_handler() -> None:
    own = {events.PlanReady, events.PlanFailed, events.TimerFired, events.SettingsChanged}
    assert set(EVENT_HANDLERS) | own == set(get_args(events.Event))


def test_each_timer_has_a_handler() -> None:
    assert set(TIMER_HANDLERS) == set(TimerKind)
