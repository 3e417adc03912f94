"""The state of the page: snapshots, and changes that lead to the same state."""

from __future__ import annotations

from typing import Any

from pliant.client.dashboard.live_state import EVENTS_KEPT, WINDOW_S, LiveState

FIRST: dict[str, Any] = {"generation": 1, "user": "ann", "role": "user", "strategy": "fcfs"}


def row(number: int, **values: Any) -> dict[str, Any]:
    start = {"id": number, "name": f"job{number}", "user": "ann", "sizes": "1-4", "submit": 1.0}
    return {**start, "state": "PENDING", "start": None, "end": None, "procs": "", **values}


def message(seq: int, now: float = 100.0, **values: Any) -> dict[str, Any]:
    return {"ok": True, "seq": seq, "now": now, **values}


def event(seq: int, kind: str, job: int, time: float = 50.0, **data: Any) -> dict[str, Any]:
    return {"seq": seq, "time": time, "kind": kind, "job": job, "text": "", "data": data}


def as_page(snapshot: dict[str, Any], *changes: dict[str, Any]) -> dict[int, Any]:
    """Return the jobs as a page has them after a snapshot and changes."""
    jobs = {job["id"]: job for job in snapshot["jobs"]}
    for each in changes:
        jobs |= {job["id"]: job for job in each.get("jobs", ())}
        for gone in each.get("gone", ()):
            jobs.pop(gone, None)
    return jobs


def test_changes_lead_to_the_state_of_a_new_snapshot() -> None:
    state = LiveState()
    state.apply(message(1, **FIRST, jobs=[row(1)], nodes=[{"name": "n1", "first": 0, "slots": 4}]))
    state.take_changes()
    begin = state.snapshot(WINDOW_S)
    started = event(2, "job.started", 1, processors=[0, 1])
    state.apply(
        message(2, events=[started], jobs=[row(1, state="RUNNING", procs="0-1", start=50.0)])
    )
    first = state.take_changes()
    state.apply(message(3, live={"1": {"memory_bytes": 7}}, jobs=[row(2)]))
    second = state.take_changes()
    assert as_page(begin, first, second) == as_page(state.snapshot(WINDOW_S))
    assert first["events"] == [started]
    assert "events" not in second


def test_nothing_new_has_no_jobs() -> None:
    state = LiveState()
    state.apply(message(1, **FIRST, jobs=[row(1)], nodes=[]))
    state.take_changes()
    assert {"jobs", "nodes", "events", "gone"}.isdisjoint(state.take_changes())


def test_a_new_server_makes_browsers_load_the_state() -> None:
    state = LiveState()
    assert state.apply(message(1, **FIRST, jobs=[], nodes=[]))
    assert not state.apply(message(2))
    assert state.apply(message(2, **{**FIRST, "generation": 2}, jobs=[], nodes=[]))


def test_a_removed_node_is_told() -> None:
    state = LiveState()
    state.apply(message(1, **FIRST, jobs=[], nodes=[{"name": "n1"}, {"name": "n2"}]))
    state.take_changes()
    state.apply(message(2, nodes_removed=["n2"]))
    assert state.take_changes()["nodes_removed"] == ["n2"]
    assert [node["name"] for node in state.snapshot(60.0)["nodes"]] == ["n1"]


def test_memory_stays_flat_over_days_of_events() -> None:
    state = LiveState()
    state.apply(message(1, **FIRST, jobs=[], nodes=[]))
    most = 0
    for hour in range(72):
        now = hour * 3600.0
        for minute in range(60):
            number, time = hour * 60 + minute + 1, now + minute * 60
            events = [
                event(3 * number, "job.submitted", number, time, name="x", user="ann", sizes="1"),
                event(3 * number + 1, "job.started", number, time + 1, processors=[0]),
                event(3 * number + 2, "job.ended", number, time + 30, state="COMPLETED"),
            ]
            state.apply(message(3 * number + 2, time + 30, events=events))
        state.forget_old()
        state.take_changes()
        most = max(most, len(state.tracks.by_job))
    assert most <= 25 * 60
    assert len(state.events) == EVENTS_KEPT


def test_a_window_has_the_jobs_that_ended_in_it() -> None:
    state = LiveState()
    ended = [row(k, state="COMPLETED", start=2.0, end=float(k * 1000)) for k in (1, 2, 3)]
    state.apply(message(1, 3000.0, **FIRST, jobs=[*ended, row(4)], nodes=[]))
    assert [job["id"] for job in state.snapshot(1500.0)["jobs"]] == [2, 3, 4]


def test_what_a_job_measured_stays_after_its_end() -> None:
    state = LiveState()
    progress = {"seconds_per_iteration": {"2": 0.5}}
    running = row(1, state="RUNNING", procs="0-1", start=2.0, progress=progress)
    state.apply(message(1, **FIRST, jobs=[running], nodes=[]))
    state.apply(message(2, jobs=[row(1, state="COMPLETED", start=2.0, end=9.0, progress=None)]))
    assert state.snapshot(WINDOW_S)["jobs"][0]["progress"] == progress
