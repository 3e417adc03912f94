"""The settings of a simulation: the machine, the strategy, costs, and failures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from pliant.core.events import NodeRegistered
from pliant.core.support.input_limits import MAX_PROCESSORS
from pliant.core.values.fair_share_settings import Shares
from pliant.core.values.user_limits import NO_LIMITS, UserLimits
from pliant.simulator.inputs.answer_models import parse_answers
from pliant.simulator.inputs.costs import FREE, SAVE, Cost
from pliant.simulator.inputs.failures import NO_FAILURES, Failures
from pliant.simulator.inputs.nodes import NodeGroup
from pliant.simulator.inputs.simulation_errors import SettingsError
from pliant.strategies import Strategy


@dataclass(frozen=True, slots=True)
class Cluster:
    """A part of the machine that strategies see by name."""

    #: The name, unique in the machine.
    name: str
    #: The number of processors, 1 or more.
    processors: int


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a simulation except its jobs. Times are in seconds.

    The same settings with the same seed give the same result on every computer.

    Raises:
        SettingsError: a value is invalid, or two values contradict each other. The message names
            the field.
    """

    #: The processors of the machine; 0 for the sum of ``clusters``.
    processors: int = 0
    #: The name of a strategy, or an instance of a strategy that is not installed.
    strategy: str | Strategy = "equipartition"
    #: The options of a strategy that is given by name.
    options: Mapping[str, object] = field(default_factory=dict)
    #: If empty, one cluster named ``default`` has all processors.
    clusters: tuple[Cluster, ...] = ()
    #: The processors of a node; 0 if each cluster is one node.
    node_size: int = 0
    #: The nodes, if they differ. Then ``clusters`` and ``node_size`` are not given.
    nodes: tuple[NodeGroup, ...] = ()
    #: The seed of costs, answers and failures. Workloads have their own.
    seed: int = 0
    #: The duration of one negotiation with all its rounds, drawn for each.
    negotiation_cost: Cost = FREE
    #: Whether the durations of the negotiations of a cycle add up, or only the longest counts.
    negotiation: Literal["sequential", "parallel"] = "sequential"
    #: The cost per changed processor (Ghafoor 3.16), drawn once for each malleable job.
    adaptation_cost: Cost = FREE
    #: How long a suspended job writes its checkpoint, and how long it reads it when it resumes,
    #: both on all its processors; drawn for each. 30 s are 60 GiB of a node at 2 GiB/s.
    checkpoint_cost: Cost = SAVE
    restart_cost: Cost = SAVE
    #: How jobs without an answer model of their own answer, see ``answer_models.parse_answers``.
    answers: str = "always"
    #: The time between two safe points of a job, from its start on; 0 if it is always at one.
    safe_point_interval: float = 0.0
    failures: Failures = NO_FAILURES
    #: For how long a job that refused is not asked again; None for until the next event.
    quiet_s: float | None = None
    #: Whether to check the core's invariants after every call (slow).
    check: bool = False
    #: Whether the result has a record of each job.
    keep_jobs: bool = True
    #: The shares of users, for strategies that use them (``Strategy.uses_usage``).
    shares: Shares = field(default_factory=Shares)
    #: The limits of users; only those of processors count.
    user_limits: UserLimits = NO_LIMITS
    #: Whether the metrics have a part for each user.
    by_user: bool = False
    #: Whether the result has the processors that each job held, for pictures.
    keep_spans: bool = False
    #: The nodes as a server knows them, instead of ``processors``, ``clusters`` and ``nodes``.
    registered: tuple[NodeRegistered, ...] = ()
    #: When the simulation begins. Jobs that were submitted earlier are submitted then, and keep
    #: their own times of arrival.
    begin: float = -inf
    #: The processors of jobs that run when the simulation begins, in rank order, by job.
    running: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.clusters and self.processors not in (0, self.total):
            raise SettingsError(
                f"clusters: they have {self.total} processors together, "
                f"but processors is {self.processors}: leave processors out, they say how many"
            )
        if self.total < 1 or any(cluster.processors < 1 for cluster in self.clusters):
            raise SettingsError("processors: a machine, and each cluster, has at least 1")
        if self.total > MAX_PROCESSORS:
            raise SettingsError(f"processors: at most {MAX_PROCESSORS}, not {self.total}")
        if len({cluster.name for cluster in self.clusters}) < len(self.clusters):
            raise SettingsError("clusters: two have the same name")
        for name in ("node_size", "safe_point_interval", "quiet_s"):
            if not (getattr(self, name) or 0) >= 0:
                raise SettingsError(f"{name}: {getattr(self, name)} is not a number >= 0")
        if self.negotiation not in ("sequential", "parallel"):
            raise SettingsError(
                f"negotiation: expected sequential or parallel, not {self.negotiation!r}"
            )
        if self.nodes and (self.clusters or self.node_size):
            raise SettingsError("nodes: give either nodes, or clusters and node_size")
        if self.nodes and self.processors not in (0, self.total):
            raise SettingsError(
                f"nodes: they have {self.total} processors together, but processors is "
                f"{self.processors}: leave processors out"
            )
        parse_answers(self.answers)

    @property
    def label(self) -> str:
        """Return the strategy with its options, as a text for users."""
        name = self.strategy if isinstance(self.strategy, str) else type(self.strategy).__name__
        own = ", ".join(f"{key}={value}" for key, value in self.options.items())
        return f"{name} ({own})" if own else name

    @property
    def total(self) -> int:
        """Return the number of processors of the machine."""
        parts = sum(cluster.processors for cluster in self.clusters)
        parts = parts or sum(group.count * group.slots for group in self.nodes)
        return parts or sum(node.slots for node in self.registered) or self.processors


def parse_clusters(text: str) -> tuple[Cluster, ...]:
    """Read ``NAME:PROCESSORS,...``.

    Raises:
        SettingsError: the text has another form; the message shows the right one.
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
