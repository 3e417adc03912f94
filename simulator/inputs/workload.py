"""What is simulated: jobs as data, from logs and from models alike."""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pliant.core.values.contract import Contract
from pliant.core.values.sizes import Sizes
from pliant.core.values.speedup import LINEAR, Speedup
from pliant.simulator.inputs.costs import LARGEST_S
from pliant.simulator.inputs.errors import SimulationError


class WorkloadError(SimulationError, ValueError):
    """A workload cannot be read or makes no sense; the message says where and what."""


def error_at(path: str | Path, line: int, text: str) -> WorkloadError:
    """The error of one line of a file."""
    return WorkloadError(f"{path}:{line}: {text}")


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of an evolving job with a demand of its own (Ghafoor 1.1)."""

    #: Seconds on one processor, as :attr:`SimJob.work`.
    work: float
    #: The fewest processors it runs on, 1 or more.
    minimum: int
    #: The most it makes use of.
    maximum: int


@dataclass(frozen=True, slots=True)
class SimJob:
    """One job of a workload. Times are seconds, from the beginning of the simulation.

    Raises:
        WorkloadError: a number makes no sense; names the job and the field.
    """

    #: Unique in the workload.
    id: int
    #: When it is submitted.
    submit: float
    #: Seconds on one processor by ``speedup``.
    work: float
    #: Numbers of processors that it can run on. Rigid: only ``requested``.
    sizes: Sizes
    #: The size its run time and its estimate hold for.
    requested: int
    #: What its user expects it to take on ``requested`` processors; None: no idea.
    estimate_s: float | None = None
    speedup: Speedup = LINEAR
    contract: Contract | None = None
    #: Whether it may be resized while it runs.
    malleable: bool = False
    #: The name of an answer model; empty: the run's default.
    answer: str = ""
    user: str = ""
    #: Seconds per changed processor; None: the run's model.
    adaptation_cost: float | None = None
    #: Evolving: what it needs, in order; their work adds up to ``work``.
    phases: tuple[Phase, ...] = ()
    #: Seconds that one talk with it takes; None: the run's model.
    negotiation_delay: float | None = None
    #: A higher one goes first under strategies that order the queue by it.
    priority: int = 0

    def __post_init__(self) -> None:
        # One look for all; only who does not pass it is asked more closely.
        try:
            sound = (
                -LARGEST_S <= self.submit <= LARGEST_S
                and 0 <= self.work <= LARGEST_S
                and self.requested >= 1
                and (self.estimate_s is None or self.estimate_s >= 0)
                and (self.adaptation_cost is None or 0 <= self.adaptation_cost <= LARGEST_S)
                and (self.negotiation_delay is None or 0 <= self.negotiation_delay <= LARGEST_S)
            )
        except TypeError:
            sound = False
        if not sound:
            raise WorkloadError(f"job {self.id}: {_fault(self)}")

    @property
    def runtime(self) -> float:
        """Seconds on ``requested`` processors."""
        return self.work / self.speedup(self.requested)


#: The fields of a job that are numbers: from, to, and whether one may lack.
_NUMBERS = {
    "submit": (-LARGEST_S, LARGEST_S, False),
    "work": (0.0, LARGEST_S, False),
    "requested": (1.0, math.inf, False),
    "estimate_s": (0.0, math.inf, True),
    "adaptation_cost": (0.0, LARGEST_S, True),
    "negotiation_delay": (0.0, LARGEST_S, True),
}


def _fault(job: SimJob) -> str:
    """What is wrong with the numbers of a job of which one is."""

    def fits(name: str) -> bool:
        low, high, may_lack = _NUMBERS[name]
        value: object = getattr(job, name)
        if value is None:
            return may_lack
        return isinstance(value, (int, float)) and low <= value <= high

    name = next(name for name in _NUMBERS if not fits(name))
    low, high, _ = _NUMBERS[name]
    return f"{name}: expected a number from {low:g} to {high:g}, not {getattr(job, name)!r}"


#: The kind of the records that need more processors than the machine has.
TOO_WIDE = "wider than the machine"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that was not used."""

    #: From 1.
    line: int
    reason: str
    #: What records of its kind have in common, as in "3 records without a run time".
    kind: str


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in the order of their submission."""

    jobs: list[SimJob]
    #: Of the machine it is meant for; None: not known.
    processors: int | None = None
    skipped: list[Skipped] = field(default_factory=list)
    name: str = ""
    #: What the head of its file says, by label.
    header: dict[str, str] = field(default_factory=dict)

    @property
    def too_wide(self) -> int:
        """How many were skipped because they need more processors than the machine has."""
        return sum(item.kind == TOO_WIDE for item in self.skipped)

    def skipped_by_kind(self) -> dict[str, list[Skipped]]:
        """The skipped records, each kind in the order of its first one."""
        kinds: dict[str, list[Skipped]] = {}
        for item in self.skipped:
            kinds.setdefault(item.kind, []).append(item)
        return kinds

    def with_jobs(self, jobs: Iterable[SimJob]) -> "Workload":
        """The same workload with other jobs."""
        return dataclasses.replace(self, jobs=list(jobs))
