"""What a federation observes and does at one poll of its servers, as plain values without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pliant.core.values.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Claim:
    """Identifies the stubs (placeholder jobs) that were submitted together for one job."""

    job: int
    #: Distinguishes the claims of a job.
    serial: int
    #: The number of stubs, at all sites.
    stubs: int


@dataclass(frozen=True, slots=True)
class Stub:
    """A placeholder job of size 1 at a site, whose processor is a node of the federation."""

    site: str
    #: Its number as a job of the site.
    job: int
    #: Its name as a node of the grid server.
    node: str
    claim: Claim
    #: Seconds since the epoch.
    submitted: float
    has_started: bool = False
    #: When it reaches its time limit, in seconds since the epoch; None if it has not started.
    ends: float | None = None


def stub_name(federation: str, node: str, claim: Claim) -> str:
    """Return the job name of a stub (placeholder job at a site).

    A restarted federation recognises its stubs by this name.
    """
    return f"stub:{federation}:{node}:{claim.job}:{claim.serial}:{claim.stubs}"


def parse_stub_name(federation: str, name: str) -> tuple[str, Claim] | None:
    """Return the node name and the claim in the job name of a stub, a placeholder job at a site.

    The claim identifies the stubs that were submitted together. The result is None if the job with
    this name is not a stub of this federation.
    """
    kind, _, rest = name.partition(":")
    owner, *words = rest.split(":")
    if kind != "stub" or owner != federation or len(words) != 4:
        return None
    node, *numbers = words
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        return None
    return node, Claim(*map(int, numbers))


@dataclass(frozen=True, slots=True)
class GridJob:
    """A job of the grid server: the federation's own server, whose nodes are at the sites."""

    id: int
    sizes: Sizes
    #: Processors of each component of a waiting job; one entry for a job without components.
    components: tuple[int, ...]
    processors: int = 0
    nodes: frozenset[str] = frozenset()
    #: Whether it waits for processors.
    waits: bool = False
    #: Whether it runs and could grow.
    may_grow: bool = False


@dataclass(frozen=True, slots=True)
class GridNode:
    """A node of the federation's own server: the processor of a stub (placeholder job)."""

    state: str
    used: int = 0
    reason: str = ""
    is_connected: bool = True


@dataclass(frozen=True, slots=True)
class SiteLoad:
    """How busy a site (another Pliant server) is, if it answered the last poll."""

    #: Idle processors, without those that waiting stubs will use.
    idle: int
    #: Whether jobs of the site's own users wait.
    has_queue: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """What one poll found: the jobs and nodes of the federation, and the load of the sites."""

    #: Seconds since the epoch.
    now: float
    #: All jobs that have not ended, in the order of their numbers.
    jobs: Sequence[GridJob] = ()
    nodes: Mapping[str, GridNode] = field(default_factory=dict)
    #: Sites that did not answer are missing.
    sites: Mapping[str, SiteLoad] = field(default_factory=dict)
    #: For a site that did not answer, these are the stubs of its last answer.
    stubs: Sequence[Stub] = ()


@dataclass(frozen=True, slots=True)
class SubmitStubs:
    """The action: submit stubs (placeholder jobs of size 1) to a site, one for each new node."""

    site: str
    nodes: tuple[str, ...]
    claim: Claim


@dataclass(frozen=True, slots=True)
class CancelStub:
    """The action: cancel a stub, a placeholder job, at its site."""

    stub: Stub
    reason: str


@dataclass(frozen=True, slots=True)
class ResumeNode:
    """The action: let jobs start on a stub's node, which registered as drained.

    A stub is a placeholder job at a site, whose processor is a node of the federation.
    """

    node: str


@dataclass(frozen=True, slots=True)
class DrainNode:
    """The action: start no new jobs on a stub's node, and ask malleable jobs to leave it.

    A stub is a placeholder job at a site, whose processor is a node of the federation.
    """

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """The action: remove a node from the federation's server, because its stub has ended.

    A stub is a placeholder job at a site, whose processor is a node of the federation.
    """

    node: str


Action = SubmitStubs | CancelStub | ResumeNode | DrainNode | RemoveNode
