"""The result of a simulation: metrics, records of jobs, and which processors they held."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pliant.core.model.lifecycle import JobState


class JobRecord(NamedTuple):
    """What happened to a job that has ended. Times are in simulated seconds."""

    #: Its number in the workload.
    id: int
    #: When it was submitted.
    submit: float
    #: Its first start; None if it never started.
    start: float | None
    #: When its processes had exited, or when it stopped waiting.
    end: float
    #: Processors at its start; 0 if it never started.
    processors: int
    #: rigid, moldable, malleable or evolving.
    job_class: str
    state: JobState
    #: How often its size changed.
    resizes: int = 0
    #: The work done, in seconds on one processor.
    work: float = 0.0
    #: Processor-seconds that it held.
    area: float = 0.0
    #: The profit of its end by its contract.
    profit: float = 0.0
    #: Why it failed or was rejected, as a text for users.
    reason: str = ""
    #: Processors at its end; 0 if it never started.
    final_size: int = 0
    #: How often it was suspended, and for how many seconds in total.
    suspensions: int = 0
    suspended_s: float = 0.0
    priority: int = 0

    @property
    def turnaround(self) -> float:
        """Return the seconds from submission to end (Ghafoor 3.1; Streit's response time)."""
        return self.end - self.submit

    @property
    def wait(self) -> float:
        """Return the seconds from submission to the first start, or to the end if never started."""
        return (self.end if self.start is None else self.start) - self.submit

    @property
    def execution(self) -> float:
        """Return the seconds from the job's first start to its end; 0 if it never started."""
        return 0.0 if self.start is None else self.end - self.start


class Span(NamedTuple):
    """A period in which a job held the same processors. Times are in simulated seconds."""

    #: Its number in the workload.
    job: int
    #: The beginning.
    start: float
    #: The end.
    end: float
    #: Numbers of the processors in the machine, from 0.
    processors: tuple[int, ...]
    #: Whether the span began with a resize.
    resized: bool


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a simulation."""

    #: Metrics by name, described in ``metrics.DESCRIPTIONS``.
    metrics: Mapping[str, float]
    #: The jobs in order of their end; empty unless the settings keep them.
    jobs: Sequence[JobRecord] = ()
    #: Empty unless the settings keep them.
    spans: Sequence[Span] = ()
