"""The forecast of starts: a conservative plan in the order of the queue."""

from __future__ import annotations

from corekit.views import make_view, running, waiting
from pliant.core.values.ids import JobId
from pliant.strategies.start_forecast import expected_starts

NOW = 1000.0


def test_jobs_start_in_order_and_in_gaps() -> None:
    active = (running(1, 0, 6, end=NOW + 100),)
    queue = (waiting(2, "8", 50.0), waiting(3, "2", 80.0), waiting(4, "2", 30.0))
    view = make_view(8, queue, active)
    assert expected_starts(view, "fcfs", {}) == {2: NOW + 100, 3: NOW, 4: NOW + 80 - 10 + 80}


def test_a_time_limit_counts_if_there_is_no_estimate() -> None:
    active = (running(1, 0, 4),)
    queue = (waiting(2, "4"), waiting(3, "4"), waiting(4, "4"))
    limits = {JobId(1): 60.0, JobId(2): 30.0}
    assert expected_starts(make_view(4, queue, active), "fcfs", limits) == {
        2: NOW + 60,
        3: NOW + 90,
    }


def test_nothing_is_expected_of_a_job_that_waits_for_one_of_unknown_length() -> None:
    view = make_view(4, (waiting(2, "4", 5.0),), (running(1, 0, 4),))
    assert expected_starts(view, "fcfs", {}) == {}


def test_the_order_is_that_of_the_strategy() -> None:
    queue = (waiting(1, "4", 50.0), waiting(2, "4", 10.0, priority=5))
    for strategy in ("sjf+easy", "priority"):
        assert expected_starts(make_view(4, queue), strategy, {}) == {2: NOW, 1: NOW + 10}
    assert expected_starts(make_view(4, queue), "easy-min", {}, most=1) == {1: NOW}


def test_a_job_with_a_begin_time_starts_then_and_after_those_that_wait() -> None:
    queue = (waiting(1, "4", 50.0), waiting(2, "2", 100.0))
    later = (
        waiting(3, "2", 10.0, arrival=NOW + 20),
        waiting(4, "2", 10.0, arrival=NOW + 70),
        waiting(5, "4", 10.0, arrival=NOW + 5000),
    )
    assert expected_starts(make_view(4, queue), "fcfs", {}, later) == {
        1: NOW,
        2: NOW + 50,
        3: NOW + 50,
        4: NOW + 70,
        5: NOW + 5000,
    }
