"""The settings of a simulation of several clusters. Times in seconds."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pliant.simulator.inputs.settings import Cluster
from pliant.simulator.inputs.simulation_errors import SettingsError
from pliant.strategies.multicluster.file_transfers import FileCatalogue
from pliant.strategies.policies.koala_precedence import Limits, Precedence

Policy = Literal["fpsma", "egs"]


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long it takes until a decision of the scheduler has an effect.

    All values are assumptions, because the paper on KOALA (Buisson et al. 2007) has none.
    """

    #: From the claim of a job until its processes run. A stub is one process on one processor.
    first_stub_s: float = 0.0
    #: From the submission of a stub of a growth until it runs.
    growth_stub_s: float = 0.0
    #: Between the submissions of two stubs of a growth.
    stub_gap_s: float = 0.0
    #: The times of stubs are multiplied by a number from 1 - spread to 1 + spread.
    spread: float = 0.0
    #: How long an application stands still in a resize, unless its job states its own time.
    pause_s: float = 0.0
    #: The longest time until a running application reaches a point where it can be resized.
    safe_point_s: float = 0.0
    #: From the exit of processes until the cluster has the processors back.
    release_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LocalUsers:
    """The users of each cluster who do not use this scheduler."""

    #: The part of each cluster that they would use on their own, below 1.
    load: float = 0.0
    #: The mean of their exponentially distributed run times.
    run_s: float = 1800.0
    #: Sizes are log-uniform from 1 to this part of the cluster.
    largest: float = 0.5


@dataclass(frozen=True, slots=True)
class LocalJob:
    """A job that a user submits to one cluster directly."""

    submit: float
    processors: int
    run_s: float


@dataclass(frozen=True, slots=True)
class Outage:
    """A period in which a cluster cannot be reached. Jobs that run there at its begin are lost."""

    cluster: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class MulticlusterSettings:
    """The clusters, the scheduler, and the durations of its operations.

    Raises:
        SettingsError: a value is invalid. The message names the field.
    """

    clusters: tuple[Cluster, ...]
    policy: Policy = "fpsma"
    precedence: Precedence = "pra"
    limits: Limits = Limits()  # noqa: RUF009 - immutable
    #: Reject a job after more failed placements and claims than this; None for no limit.
    max_tries: int | None = None
    #: The time between two rounds of the scheduler. With 0 there is one after every event.
    poll_s: float = 0.0
    #: The time between two reports of the information provider. With 0 there is one at each poll.
    snapshot_s: float = 0.0
    #: How long before the start of a job its processors are claimed.
    lead_s: float = 0.0
    #: Whether local managers accept reservations, so that jobs are claimed when they are placed.
    reservations: bool = False
    latencies: Latencies = Latencies()
    local_users: LocalUsers = LocalUsers()
    #: Local jobs by cluster, in addition to those of ``local_users``.
    local_jobs: tuple[tuple[str, tuple[LocalJob, ...]], ...] = ()
    outages: tuple[Outage, ...] = ()
    #: The input files of jobs, for the placement policy ``cf`` and for transfer times.
    files: FileCatalogue | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        names = [cluster.name for cluster in self.clusters]
        if not names or len(set(names)) != len(names):
            raise SettingsError("clusters: expected one or more clusters with names of their own")
        for cluster in self.clusters:
            if cluster.processors < 1:
                raise SettingsError(f"clusters: {cluster.name} needs at least 1 processor")
        for field in ("poll_s", "snapshot_s", "lead_s"):
            self._check_time(field, getattr(self, field))
        for field in Latencies.__dataclass_fields__:
            self._check_time(f"latencies: {field}", getattr(self.latencies, field))
        if not 0 <= self.latencies.spread <= 1:
            raise SettingsError(f"latencies: spread {self.latencies.spread} is not from 0 to 1")
        users = self.local_users
        if not (0 <= users.load < 1 and users.run_s > 0 and 0 < users.largest <= 1):
            raise SettingsError(
                f"local_users: {users}: expected 0 <= load < 1, run_s > 0 and 0 < largest <= 1"
            )
        self._check_names("local_jobs", (name for name, _ in self.local_jobs))
        self._check_names("outages", (outage.cluster for outage in self.outages))
        for outage in self.outages:
            if not 0 <= outage.start < outage.end:
                raise SettingsError(f"outages: {outage}: expected 0 <= start < end")

    def _check_time(self, field: str, value: float) -> None:
        if not 0 <= value < float("inf"):
            raise SettingsError(f"{field}: expected seconds of at least 0, not {value}")

    def _check_names(self, field: str, names: Iterable[str]) -> None:
        known = {cluster.name for cluster in self.clusters}
        for name in names:
            if name not in known:
                raise SettingsError(
                    f"{field}: there is no cluster {name!r}; there are: {', '.join(sorted(known))}"
                )

    @property
    def largest(self) -> int:
        """Return the number of processors of the largest cluster."""
        return max(cluster.processors for cluster in self.clusters)
