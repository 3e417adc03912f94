from __future__ import annotations

from pliant.core.model.timers import Timer, TimerKind
from pliant.core.values.ids import JobId
from pliant.server.execution.timers import MAX_STALE_ENTRIES, Timers
from pliant.server.support.stall_detection import CATCH_UP_S


def test_timers_fire_once_and_can_be_moved() -> None:
    timers = Timers()
    one, two = (Timer(TimerKind.OFFER, JobId(n), 1) for n in (1, 2))
    timers.set(one, 10)
    timers.set(two, 5)
    timers.set(one, 3)
    assert timers.next_time() == 3
    assert timers.due(2) == []
    assert timers.due(20) == [one, two]
    assert timers.due(20) == []
    assert timers.next_time() is None


def test_jobs_that_ended_leave_no_timers() -> None:
    timers = Timers()
    timers.set(Timer(TimerKind.LIMIT, JobId(0), 1), 1e9)
    for number in range(1, 10_000):
        for kind in (TimerKind.START, TimerKind.LIMIT):
            timers.set(Timer(kind, JobId(number), 1), 1000 + number)
        timers.drop(JobId(number), 1)
    assert len(timers._heap) < 2 * MAX_STALE_ENTRIES
    assert timers.due(1e6) == []
    assert timers.next_time() == 1e9


def test_answers_have_the_time_in_which_nobody_listened() -> None:
    timers = Timers()
    answer, limit, later = (
        Timer(kind, JobId(number), 1)
        for number, kind in enumerate((TimerKind.DEADLINE, TimerKind.LIMIT, TimerKind.LIMIT))
    )
    for timer, at in ((answer, 10), (limit, 10), (later, 90)):
        timers.set(timer, at)
    timers.extend(20, 30)
    assert timers.due(30 + CATCH_UP_S - 0.1) == []
    assert set(timers.due(30 + CATCH_UP_S)) == {answer, limit}
    timers.set(answer, 20)
    timers.extend(50, 60)
    assert timers.due(69) == []
    assert timers.due(70) == [answer]
    assert timers.due(90) == [later]
