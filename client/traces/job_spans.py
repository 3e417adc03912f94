"""Computes the spans of a trace for each start of a job, from events. No input or output.

The cost of an event does not depend on the number of waiting jobs, and the memory is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: Jobs whose start is awaited. Of further ones, the oldest are forgotten.
MAX_JOBS = 100_000
#: A program that has not registered this long after the start of its processes is taken to be one
#: that never does, seconds.
REGISTRATION_S = 60.0


class Span(NamedTuple):
    """A part of the start of a job, with times in seconds since the epoch."""

    name: str
    start: float
    end: float


@dataclass(slots=True)
class JobStart:
    """The stages of the start of one run of a job, from the queue to the program's registration."""

    job: int
    queued: float
    attributes: dict[str, str | int] = field(default_factory=dict)
    promised: float | None = None
    ordered: float | None = None
    running: float | None = None
    registered: float | None = None
    #: How the job ended, if it did so before its first instruction.
    failed: str = ""
    end: float = 0.0

    def spans(self) -> list[Span]:
        """Return the spans in order. The last span of a job that failed ends with the job."""
        moments = (
            ("wait for processors", self.promised or self.ordered),
            ("wait for processors of other jobs", self.ordered if self.promised else self.promised),
            ("start processes", self.running),
            ("initialize MPI", self.registered),
        )
        found, begin = [], self.queued
        for name, moment in moments:
            if moment is not None:
                found.append(Span(name, begin, moment))
                begin = moment
            elif self.failed and name != "wait for processors of other jobs":
                found.append(Span(name, begin, self.end))
                break
        return found


class JobStarts:
    """Collects, from events, the times of the stages of each job start that is not complete."""

    def __init__(self, max_jobs: int = MAX_JOBS) -> None:
        self._max_jobs = max_jobs
        self._by_job: OrderedDict[int, JobStart] = OrderedDict()
        #: Jobs whose processes run and whose program may register, in the order of these events.
        self._unregistered: OrderedDict[int, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_job)

    def apply(self, event: Mapping[str, Any]) -> JobStart | None:
        """Apply an event; if it completes the start of a job, return this start, else None."""
        kind, job, time = event["kind"], event.get("job"), float(event["time"])
        if job is None:
            return None
        data = event.get("data") or {}
        if kind in ("job.submitted", "job.queued"):
            self._begin(job, time, data)
            return None
        start = self._by_job.get(job)
        if start is None:
            return None
        match kind:
            case "job.promised":
                start.promised = start.promised or time
            case "job.started":
                start.ordered = time
                start.attributes["pliant.job.processors"] = len(data.get("processors", ()))
            case "job.running":
                start.running = time
                self._unregistered[job] = time
            case "application.registered" if start.running is not None:
                start.registered = time
                return self._finish(start, time)
            case "job.ended":
                # Without a program that registers, the processes have done their work.
                start.failed = "" if start.running is not None else str(data.get("state", "ended"))
                return self._finish(start, start.running or time)
            case _:
                pass
        return None

    def overdue(self, now: float) -> Iterator[JobStart]:
        """Yield, as complete, the start of each job whose program has not registered in time.

        The limit is `REGISTRATION_S` seconds after the job's processes have started.
        """
        while self._unregistered:
            job, running = next(iter(self._unregistered.items()))
            if running > now - REGISTRATION_S:
                return
            yield self._finish(self._by_job[job], running)

    def _begin(self, job: int, time: float, data: Mapping[str, Any]) -> None:
        before = self._forget(job)
        attributes = dict(before.attributes) if before is not None else {}
        for key in ("name", "user", "sizes"):
            if isinstance(data.get(key), str):
                attributes[f"pliant.job.{key}"] = data[key]
        if isinstance(data.get("run"), int):
            attributes["pliant.job.run"] = data["run"]
        self._by_job[job] = JobStart(job, time, {**attributes, "pliant.job.id": job})
        if len(self._by_job) > self._max_jobs:
            self._forget(next(iter(self._by_job)))

    def _forget(self, job: int) -> JobStart | None:
        self._unregistered.pop(job, None)
        return self._by_job.pop(job, None)

    def _finish(self, start: JobStart, end: float) -> JobStart:
        self._forget(start.job)
        start.end = end
        return start
