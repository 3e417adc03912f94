"""The order of scheduled events, and a clock that never runs backwards."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from pliant.core.events import Event
from pliant.simulator.run.event_queue import ARRIVAL, END, OTHER, EventQueue


class Diary:
    """Notes the time and the argument of each entry when its time has come."""

    def __init__(self) -> None:
        self.queue, self.found = EventQueue(), list[tuple[float, object]]()

    def note(self, argument: object) -> Iterable[Event]:
        self.found.append((self.queue.moment, argument))
        return ()

    def at(self, time: float, argument: object, kind: int = OTHER) -> None:
        self.queue.schedule(time, self.note, argument, kind)

    def run(self) -> list[tuple[float, object]]:
        while self.queue.advance_to_next():
            self.queue.collect_due([])
        return self.found


def test_entries_are_handled_by_time_then_by_kind_then_as_scheduled() -> None:
    diary = Diary()
    for time, argument, kind in (
        (2.0, "last", OTHER),
        (1.0, "first of the others", OTHER),
        (1.0, "second of the others", OTHER),
        (1.0, "arrival", ARRIVAL),
        (1.0, "end", END),
    ):
        diary.at(time, argument, kind)
    assert [argument for _, argument in diary.run()] == [
        "end",
        "arrival",
        "first of the others",
        "second of the others",
        "last",
    ]


@pytest.mark.parametrize("time", [4.999, 0.0, -math.inf, math.nan])
def test_nothing_is_scheduled_in_the_past(time: float) -> None:
    diary = Diary()
    diary.at(5.0, "now")
    diary.run()
    with pytest.raises(ValueError, match="cannot schedule an event"):
        diary.at(time, "before")
    diary.at(5.0, "at once")
    assert diary.run() == [(5.0, "now"), (5.0, "at once")]


def test_the_first_entry_may_be_before_zero() -> None:
    diary = Diary()
    diary.at(-3.0, "first")
    assert diary.run() == [(-3.0, "first")]


def test_an_entry_may_schedule_another_one_within_the_time_that_a_negotiation_took() -> None:
    diary = Diary()

    def again(argument: object) -> Iterable[Event]:
        diary.at(diary.queue.moment + 1, argument)
        return ()

    diary.queue.schedule(3.0, again, "later")
    diary.queue.advance(10.0)
    diary.queue.collect_due([])
    assert diary.found == [(4.0, "later")]
    assert (diary.queue.now, diary.queue.moment) == (10.0, 10.0)
