"""What is simulated: jobs as data, from logs and from models alike."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pliant.core.contract import Contract
from pliant.core.sizes import Sizes
from pliant.core.speedup import LINEAR, Speedup
from pliant.simulator.errors import SimulationError


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
    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class SimJob:
    """One job of a workload. Times are seconds, from the beginning of the simulation."""

    id: int
    submit: float
    #: Seconds on one processor by ``speedup``.
    work: float
    #: Rigid: only ``requested``.
    sizes: Sizes
    #: The size its run time and its estimate hold for.
    requested: int
    #: What its user expects it to take on ``requested`` processors; None: no idea.
    estimate_s: float | None = None
    speedup: Speedup = LINEAR
    contract: Contract | None = None
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

    @property
    def runtime(self) -> float:
        """Seconds on ``requested`` processors."""
        return self.work / self.speedup(self.requested)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that was not used."""

    #: From 1.
    line: int
    reason: str


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

    def with_jobs(self, jobs: Iterable[SimJob]) -> "Workload":
        """The same workload with other jobs."""
        return dataclasses.replace(self, jobs=list(jobs))
