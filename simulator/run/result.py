"""What a simulation gives back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pliant.core.model.lifecycle import JobState


class JobRecord(NamedTuple):
    """What became of a job. Times in seconds on the simulation's clock."""

    #: Its number in the workload.
    id: int
    #: When it was submitted.
    submit: float
    #: Its first start; None: it never started.
    start: float | None
    #: When its processes were gone, or its waiting ended.
    end: float
    #: Processors at its start; 0: it never started.
    processors: int
    #: rigid, moldable, malleable or evolving.
    job_class: str
    state: JobState
    #: How often its size changed.
    resizes: int = 0
    #: Seconds of one processor's work that were done.
    work: float = 0.0
    #: Processor-seconds that it held.
    area: float = 0.0
    #: What its end was worth by its contract.
    profit: float = 0.0
    #: Why it failed or was rejected, for people.
    reason: str = ""
    #: Processors at its end; 0: it never started.
    final_size: int = 0
    #: How often it was suspended, and for how many seconds together.
    suspensions: int = 0
    suspended_s: float = 0.0
    priority: int = 0

    @property
    def turnaround(self) -> float:
        """From submission to end (Ghafoor 3.1; Streit's response time)."""
        return self.end - self.submit

    @property
    def wait(self) -> float:
        """From submission to start; to the end of a job that never started."""
        return (self.end if self.start is None else self.start) - self.submit

    @property
    def execution(self) -> float:
        """From its first start to its end."""
        return 0.0 if self.start is None else self.end - self.start


class Span(NamedTuple):
    """Which processors a job held between two moments, in seconds on the simulation's clock."""

    #: Its number in the workload.
    job: int
    #: From when on.
    start: float
    #: Until when.
    end: float
    #: Numbers of the processors in the machine, from 0.
    processors: tuple[int, ...]
    #: Whether it began with a resize.
    resized: bool


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that is known afterwards."""

    #: By name; ``metrics.DESCRIPTIONS`` says what each is.
    metrics: Mapping[str, float]
    #: In order of their end, if the settings keep them.
    jobs: Sequence[JobRecord] = ()
    #: If the settings keep them.
    spans: Sequence[Span] = ()
