"""What a simulation is told: the machine, the strategy, what things cost, what goes wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pliant.simulator.inputs.answer_models import parse_answers
from pliant.simulator.inputs.costs import FREE, SAVE, Cost
from pliant.simulator.inputs.errors import SettingsError
from pliant.simulator.inputs.failures import NO_FAILURES, Failures
from pliant.strategies import Strategy

#: Sets of processors are numbers with a bit for each: a larger machine is a slip of the keyboard.
MOST_PROCESSORS = 1 << 24


@dataclass(frozen=True, slots=True)
class Cluster:
    """A part of the machine that strategies see by name."""

    #: Unique in the machine.
    name: str
    #: 1 or more.
    processors: int


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything besides the jobs. Times in seconds; one seed gives one result on any machine.

    Raises:
        SettingsError: a value makes no sense, or two of them do not go together; names the field.
    """

    #: Of the machine; 0: the sum of ``clusters``.
    processors: int = 0
    #: A name, or an instance for a strategy that is not installed.
    strategy: str | Strategy = "equipartition"
    #: Of a strategy given by name.
    options: Mapping[str, object] = field(default_factory=dict)
    #: None named: one, ``default``, with all processors.
    clusters: tuple[Cluster, ...] = ()
    #: Processors of a node; 0: each cluster is one node.
    node_size: int = 0
    #: Of costs, answers and failures, a whole number; workloads have their own.
    seed: int = 0
    #: Of one talk with all its rounds, drawn for each.
    negotiation_cost: Cost = FREE
    #: Whether the costs of the talks of a cycle add up, or only the dearest counts.
    negotiation: Literal["sequential", "parallel"] = "sequential"
    #: Per changed processor (Ghafoor 3.16), drawn once for each malleable job.
    adaptation_cost: Cost = FREE
    #: How long a job that is suspended writes its checkpoint, and how long it reads it when it
    #: goes on, both on all its processors; drawn for each. 30 s are 60 GiB of a node at 2 GiB/s.
    checkpoint_cost: Cost = SAVE
    restart_cost: Cost = SAVE
    #: How jobs answer that name no model of their own; see ``applications.parse_answers``.
    answers: str = "always"
    #: Between two safe points of a job, counted from its start; 0: it is always at one.
    safe_point_interval: float = 0.0
    failures: Failures = NO_FAILURES
    #: How long a job that refused is not asked again; None: until the next event.
    quiet_s: float | None = None
    #: Check the core's invariants after everything that happens (slow).
    check: bool = False
    #: Keep a record of each job in the result.
    keep_jobs: bool = True
    #: Keep who held which processors when, for pictures.
    keep_spans: bool = False

    def __post_init__(self) -> None:
        if self.clusters and self.processors not in (0, self.total):
            raise SettingsError(
                f"clusters: they have {self.total} processors together, "
                f"but processors is {self.processors}: leave processors out, they say how many"
            )
        if self.total < 1 or any(cluster.processors < 1 for cluster in self.clusters):
            raise SettingsError("processors: a machine, and each cluster, has at least 1")
        if self.total > MOST_PROCESSORS:
            raise SettingsError(f"processors: at most {MOST_PROCESSORS}, not {self.total}")
        if len({cluster.name for cluster in self.clusters}) < len(self.clusters):
            raise SettingsError("clusters: two have the same name")
        for name in ("node_size", "safe_point_interval", "quiet_s"):
            if not (getattr(self, name) or 0) >= 0:
                raise SettingsError(f"{name}: {getattr(self, name)} is not a number >= 0")
        if self.negotiation not in ("sequential", "parallel"):
            raise SettingsError(
                f"negotiation: expected sequential or parallel, not {self.negotiation!r}"
            )
        parse_answers(self.answers)

    @property
    def label(self) -> str:
        """The strategy with its options, for people."""
        name = self.strategy if isinstance(self.strategy, str) else type(self.strategy).__name__
        own = ", ".join(f"{key}={value}" for key, value in self.options.items())
        return f"{name} ({own})" if own else name

    @property
    def total(self) -> int:
        """Processors of the machine."""
        return sum(cluster.processors for cluster in self.clusters) or self.processors


def parse_clusters(text: str) -> tuple[Cluster, ...]:
    """Read ``NAME:PROCESSORS,...``.

    Raises:
        SettingsError: how to write it.
    """
    clusters = []
    for part in text.split(","):
        name, _, size = part.strip().partition(":")
        if not (name and size.isascii() and size.isdigit() and int(size)):
            raise SettingsError(
                f"clusters {text!r}: write NAME:PROCESSORS,..., such as delft:64,leiden:32"
            )
        clusters.append(Cluster(name, int(size)))
    return tuple(clusters)
