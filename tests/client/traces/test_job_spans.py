"""The parts of the start of a job, from events."""

from __future__ import annotations

from typing import Any

from pliant.client.traces.job_spans import REGISTRATION_S, JobStart, JobStarts, Span


def event(kind: str, time: float, job: int | None = 7, **data: Any) -> dict[str, Any]:
    return {"kind": kind, "time": time, "job": job, "data": data}


def last(*events: dict[str, Any], starts: JobStarts | None = None) -> JobStart | None:
    """Return what the last event completes; no other one completes a start."""
    starts = JobStarts() if starts is None else starts
    found = [starts.apply(each) for each in events]
    assert found[:-1] == [None] * (len(found) - 1)
    return found[-1]


SUBMITTED = event("job.submitted", 10.0, name="heat", user="ann", sizes="1-8")
STARTED = event("job.started", 30.0, processors=[0, 1])
RUNNING = event("job.running", 31.0)


def test_a_malleable_job_has_all_parts() -> None:
    start = last(
        SUBMITTED,
        event("job.promised", 20.0),
        event("job.promised", 25.0),
        STARTED,
        RUNNING,
        event("application.registered", 33.0),
    )
    assert start is not None
    assert start.spans() == [
        Span("wait for processors", 10.0, 20.0),
        Span("wait for processors of other jobs", 20.0, 30.0),
        Span("start processes", 30.0, 31.0),
        Span("initialize MPI", 31.0, 33.0),
    ]
    assert (start.queued, start.end, start.failed) == (10.0, 33.0, "")
    assert start.attributes == {
        "pliant.job.id": 7,
        "pliant.job.name": "heat",
        "pliant.job.user": "ann",
        "pliant.job.sizes": "1-8",
        "pliant.job.processors": 2,
    }


def test_a_program_that_does_not_register_has_no_mpi_part() -> None:
    ended = last(SUBMITTED, STARTED, RUNNING, event("job.ended", 500.0, state="FAILED"))
    assert ended is not None
    assert (ended.end, ended.failed, len(ended.spans())) == (31.0, "", 2)
    starts = JobStarts()
    assert last(SUBMITTED, STARTED, RUNNING, starts=starts) is None
    assert list(starts.overdue(31.0 + REGISTRATION_S - 1)) == []
    (overdue,) = starts.overdue(31.0 + REGISTRATION_S)
    assert overdue.spans() == ended.spans()
    assert len(starts) == 0


def test_a_job_that_ends_before_it_runs_has_failed() -> None:
    start = last(SUBMITTED, event("job.ended", 12.0, state="CANCELLED"))
    assert start is not None
    assert (start.failed, start.spans()) == (
        "CANCELLED",
        [Span("wait for processors", 10.0, 12.0)],
    )
    start = last(SUBMITTED, STARTED, event("job.ended", 40.0, state="NODE_FAIL"))
    assert start is not None
    assert [span.name for span in start.spans()] == ["wait for processors", "start processes"]


def test_another_run_has_another_start() -> None:
    starts = JobStarts()
    assert last(SUBMITTED, STARTED, RUNNING, event("application.registered", 33.0), starts=starts)
    again = event("job.queued", 50.0, run=2)
    start = last(again, {**STARTED, "time": 60.0}, {**RUNNING, "time": 61.0}, starts=starts)
    assert start is None
    (start,) = starts.overdue(1000.0)
    assert (start.queued, start.end, start.attributes["pliant.job.run"]) == (50.0, 61.0, 2)


def test_events_of_unknown_jobs_and_of_nodes_are_ignored() -> None:
    assert last(STARTED, RUNNING, event("job.ended", 1.0, state="FAILED")) is None
    assert last(event("node.state", 1.0, job=None)) is None


def test_memory_is_bounded() -> None:
    starts = JobStarts(max_jobs=10)
    for job in range(1000):
        starts.apply(event("job.submitted", 1.0, job=job))
        starts.apply(event("job.running", 1.0, job=job))
    assert len(starts) == 10
    assert len(list(starts.overdue(1000.0))) == 10
