"""The jobs of a simulation, from logs and from models alike."""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pliant.core.values.node_needs import NodeNeeds
from pliant.core.values.profit_contract import Contract
from pliant.core.values.sizes import Sizes
from pliant.core.values.speedup import LINEAR, Speedup
from pliant.simulator.inputs.costs import MAX_S
from pliant.simulator.inputs.simulation_errors import SimulationError


class WorkloadError(SimulationError, ValueError):
    """A workload cannot be read or is invalid. The message says where and why."""


def error_at(path: str | Path, line: int, text: str) -> WorkloadError:
    """Return the error for one line of a file."""
    return WorkloadError(f"{path}:{line}: {text}")


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the run of an evolving job, with its own demand for processors (Ghafoor 1.1)."""

    #: The work in seconds on one processor, as in :attr:`SimJob.work`.
    work: float
    #: The fewest processors that it runs on, 1 or more.
    minimum: int
    #: The most processors that it can use.
    maximum: int


@dataclass(frozen=True, slots=True)
class SimJob:
    """A job of a workload. Times are in seconds from the beginning of the simulation.

    Raises:
        WorkloadError: a number is invalid. The message names the job and the field.
    """

    #: The number of the job, unique in the workload.
    id: int
    #: When it is submitted.
    submit: float
    #: The work in seconds on one processor, by ``speedup``.
    work: float
    #: The numbers of processors that it can run on; only ``requested`` for a rigid job.
    sizes: Sizes
    #: The size for which its run time and its estimate hold.
    requested: int
    #: The user's estimate of its run time on ``requested`` processors; None if there is none.
    estimate_s: float | None = None
    speedup: Speedup = LINEAR
    contract: Contract | None = None
    #: Whether it may be resized while it runs.
    malleable: bool = False
    #: The name of its answer model; empty for the default of the settings.
    answer: str = ""
    user: str = ""
    #: The account that it is charged to; the group in a log.
    account: str = ""
    #: The seconds per changed processor; None for the cost in the settings.
    adaptation_cost: float | None = None
    #: The phases of an evolving job, in order. Their work adds up to ``work``.
    phases: tuple[Phase, ...] = ()
    #: The seconds of one negotiation with it; None for the cost in the settings.
    negotiation_delay: float | None = None
    #: Strategies that order the queue by priority start jobs with higher ones first.
    priority: int = 0
    #: What its processes need of their nodes; None if any processors do.
    needs: NodeNeeds | None = None

    def __post_init__(self) -> None:
        # One cheap check for all fields; `_fault` finds the field only if it fails.
        try:
            sound = (
                -MAX_S <= self.submit <= MAX_S
                and 0 <= self.work <= MAX_S
                and self.requested >= 1
                and (self.estimate_s is None or self.estimate_s >= 0)
                and (self.adaptation_cost is None or 0 <= self.adaptation_cost <= MAX_S)
                and (self.negotiation_delay is None or 0 <= self.negotiation_delay <= MAX_S)
            )
        except TypeError:
            sound = False
        if not sound:
            raise WorkloadError(f"job {self.id}: {_fault(self)}")

    @property
    def runtime(self) -> float:
        """Return the run time in seconds on ``requested`` processors."""
        return self.work / self.speedup(self.requested)


#: The numeric fields of a job: smallest value, largest value, whether None is allowed.
_NUMBERS = {
    "submit": (-MAX_S, MAX_S, False),
    "work": (0.0, MAX_S, False),
    "requested": (1.0, math.inf, False),
    "estimate_s": (0.0, math.inf, True),
    "adaptation_cost": (0.0, MAX_S, True),
    "negotiation_delay": (0.0, MAX_S, True),
}


def _fault(job: SimJob) -> str:
    """Return a message about the first invalid number of a job that has at least one."""

    def fits(name: str) -> bool:
        low, high, may_lack = _NUMBERS[name]
        value: object = getattr(job, name)
        if value is None:
            return may_lack
        return isinstance(value, (int, float)) and low <= value <= high

    name = next(name for name in _NUMBERS if not fits(name))
    low, high, _ = _NUMBERS[name]
    return f"{name}: expected a number from {low:g} to {high:g}, not {getattr(job, name)!r}"


#: The kind of records that need more processors than the machine has.
TOO_WIDE = "wider than the machine"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record of a log that was not used, with its line number and the reason."""

    #: The number of the line, from 1.
    line: int
    reason: str
    #: The kind of the reason, which completes "3 records ...", as in "without a run time".
    kind: str


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in the order of their submission."""

    jobs: list[SimJob]
    #: The processors of the machine; None if not known.
    processors: int | None = None
    skipped: list[Skipped] = field(default_factory=list)
    name: str = ""
    #: The labels in the head of its file, with their values.
    header: dict[str, str] = field(default_factory=dict)

    @property
    def too_wide(self) -> int:
        """Return how many records were skipped because they are wider than the machine."""
        return sum(item.kind == TOO_WIDE for item in self.skipped)

    def skipped_by_kind(self) -> dict[str, list[Skipped]]:
        """Return the skipped records by kind, in the order in which the kinds first occur."""
        kinds: dict[str, list[Skipped]] = {}
        for item in self.skipped:
            kinds.setdefault(item.kind, []).append(item)
        return kinds

    def with_jobs(self, jobs: Iterable[SimJob]) -> "Workload":
        """Return a copy of the workload with other jobs."""
        return dataclasses.replace(self, jobs=list(jobs))
