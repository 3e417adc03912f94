"""Decide which stubs a federation submits, puts into use and gives back. No I/O.

A stub is a job of size 1 at a site (another Pliant server); its processor becomes a node of the
federation's own server, the grid server. A claim is a set of stubs that were submitted together for
one job of the grid server. A claim passes through these states. All but the timers follow from what
the grid server and the sites report. So a restarted federation continues where the last one
stopped.

``claimed``: the stubs are jobs of their sites, and wait there or start.
``registered``: the nodes of all stubs have registered at the grid server, where they are drained.
``in use``: the nodes were resumed together, and the grid server's strategy uses them.
``given back``: the stubs are cancelled and their nodes are removed, because a stub did not register
in time, has ended, or is not needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pliant.client.federation.planner_inputs_and_actions import (
    Action,
    CancelStub,
    Claim,
    DrainNode,
    GridJob,
    Observation,
    RemoveNode,
    ResumeNode,
    Stub,
    SubmitStubs,
)
from pliant.client.federation.settings import FederationSettings
from pliant.core.model.nodes import JOINED_DRAINED

#: The reason of nodes that this federation drains.
GIVEN_BACK = "given back to its site"


class Planner:
    """Decides on the actions of a federation at each poll."""

    def __init__(self, settings: FederationSettings) -> None:
        self._settings = settings
        #: For each idle node in use, when it became idle.
        self._idle_since: dict[str, float] = {}
        #: For each job that did not use its stubs, until when it gets no others for growth.
        self._no_growth_until: dict[int, float] = {}
        #: Whether a claim is not in use yet, so that the next poll should come soon.
        self.has_open_claims = False

    def plan(self, seen: Observation) -> list[Action]:
        """Return the actions that follow from an observation, in the order to carry them out."""
        claims: dict[Claim, list[Stub]] = defaultdict(list)
        for stub in seen.stubs:
            claims[stub.claim].append(stub)
        running = {job.id for job in seen.jobs}
        actions: list[Action] = list(self._remove_lost(seen))
        open_claims = set[int]()
        for claim, stubs in claims.items():
            if self._is_in_use(stubs, seen):
                continue
            open_claims.add(claim.job)
            actions += self._settle(claim, stubs, seen, has_job=claim.job in running)
        actions += self._give_back(seen, open_claims)
        new = self._claim(seen, open_claims)
        self.has_open_claims = bool(open_claims or new)
        return [*actions, *new]

    def _remove_lost(self, seen: Observation) -> Iterable[Action]:
        """Yield an action for each node whose stub, its job at a site, has ended: remove the node.

        The federation's server refuses to remove a node as long as jobs hold it.
        """
        known = {stub.node for stub in seen.stubs}
        for name, node in seen.nodes.items():
            is_here = name.rpartition("-")[0] in seen.sites
            if is_here and name not in known and not node.is_connected:
                yield RemoveNode(name)

    @staticmethod
    def _is_registered(stub: Stub, seen: Observation) -> bool:
        node = seen.nodes.get(stub.node)
        return node is not None and (node.state, node.reason) == ("DRAINED", JOINED_DRAINED)

    def _is_in_use(self, stubs: Sequence[Stub], seen: Observation) -> bool:
        """Return whether the nodes of all these stubs have registered and were resumed.

        A stub is a placeholder job at a site, whose processor is a node of the federation.
        """
        return all(stub.node in seen.nodes for stub in stubs) and not any(
            self._is_registered(stub, seen) for stub in stubs
        )

    def _settle(
        self, claim: Claim, stubs: Sequence[Stub], seen: Observation, *, has_job: bool
    ) -> Iterable[Action]:
        """Yield the actions for a claim, the stubs that were submitted together for one job.

        A stub is a placeholder job at a site. If all stubs have registered, their nodes are resumed
        together. All stubs are cancelled if the job has ended, a stub is missing, or one has not
        registered within ``start_timeout_s``.
        """
        registered = [stub for stub in stubs if self._is_registered(stub, seen)]
        absent = [stub for stub in stubs if stub.node not in seen.nodes]
        if len(registered) + len(absent) < len(stubs):  # the others were resumed before
            yield from (ResumeNode(stub.node) for stub in registered)
            return
        deadline = min(stub.submitted for stub in stubs) + self._settings.start_timeout_s
        reason = ""
        if not has_job:
            reason = f"job {claim.job} has ended"
        elif len(stubs) < claim.stubs:
            reason = f"only {len(stubs)} of {claim.stubs} stubs exist"
        elif absent and seen.now >= deadline:
            reason = (
                f"{len(absent)} of {claim.stubs} stubs did not register within "
                f"{self._settings.start_timeout_s:g} s"
            )
        if reason:
            yield from (CancelStub(stub, reason) for stub in stubs)
        elif not absent:
            yield from (ResumeNode(stub.node) for stub in stubs)

    def _give_back(self, seen: Observation, open_claims: set[int]) -> Iterable[Action]:
        """Yield the actions that end stubs (placeholder jobs) which are no longer to be kept.

        These stubs are idle, lost, drained or near their time limit. A stub is idle if no job has
        used its node for ``idle_s`` seconds. A node that is up is drained first. Its stub is
        cancelled when no job uses the node any more.
        """
        idle_since = {}
        for stub in seen.stubs:
            node = seen.nodes.get(stub.node)
            if node is None or self._is_registered(stub, seen):
                continue
            if node.state == "LOST":
                yield CancelStub(stub, "the grid server has lost the node")
            elif node.state == "DRAINED" and not node.used:
                yield CancelStub(stub, node.reason)
            elif stub.ends is not None and seen.now > stub.ends - self._settings.leave_before_s:
                if node.state == "UP":
                    yield DrainNode(stub.node, GIVEN_BACK)
            elif node.state == "UP" and not node.used:
                # Idle stubs are kept while others are claimed, because a job may wait for both.
                since = seen.now if open_claims else self._idle_since.get(stub.node, seen.now)
                idle_since[stub.node] = since
                if seen.now - since >= self._settings.idle_s:
                    self._no_growth_until[stub.claim.job] = seen.now + self._settings.retry_s
                    yield DrainNode(stub.node, GIVEN_BACK)
        self._idle_since = idle_since

    def _claim(self, seen: Observation, open_claims: set[int]) -> list[Action]:
        """Return the actions that claim processors of sites by submitting stubs, placeholder jobs.

        Processors are claimed for waiting jobs of the federation. If no job waits, they are claimed
        for jobs that can grow.
        """
        capacity = _Capacity(self._settings, seen)
        found: list[Action] = []
        for job in seen.jobs:
            if job.waits and job.id not in open_claims:
                found += capacity.submit(job, self._place(job, capacity), seen)
        if any(job.waits for job in seen.jobs):
            return found
        for job in seen.jobs:
            may_claim = self._no_growth_until.get(job.id, 0.0) <= seen.now
            if job.may_grow and may_claim and job.id not in open_claims:
                found += capacity.submit(job, self._grow(job, capacity), seen)
        return found

    def _place(self, job: GridJob, capacity: _Capacity) -> dict[str, int]:
        """Return how many stubs (jobs of size 1) to claim at each site for a job that waits.

        A job has one or several components. Each needs all its processors at one site.
        Worst fit: each component goes to the site with the most processors left. If one component
        finds no site, nothing is claimed. Stubs that are idle already are used first.
        """
        claimable, ready = capacity.claimable(), dict(capacity.ready)
        needed = dict.fromkeys(claimable, 0)
        for size in sorted(job.components, reverse=True):
            room = {name: claimable[name] + ready.get(name, 0) for name in claimable}
            site = max(sorted(room), key=lambda name: room[name], default="")
            if not site or room[site] < size:
                return {}
            used = min(size, ready.get(site, 0))
            ready[site] = ready.get(site, 0) - used
            claimable[site] -= size - used
            needed[site] += size - used
        capacity.ready = ready
        return needed

    def _grow(self, job: GridJob, capacity: _Capacity) -> dict[str, int]:
        """Return how many stubs (jobs of size 1) to claim at each site for a running job to grow.

        Sites where the job runs already come first, then those with the most idle processors.
        """
        own = {node.rpartition("-")[0] for node in job.nodes}
        names = [
            name for name in capacity.idle if name in own or self._settings.growth == "any-site"
        ]
        idle = sum(capacity.ready.values())
        room = {name: capacity.for_growth(name) for name in names}
        size = job.sizes.largest_at_most(job.processors + idle + sum(room.values()))
        missing = size - job.processors - idle
        needed = {}
        for name in sorted(names, key=lambda name: (name not in own, -room[name], name)):
            needed[name] = max(0, min(missing, room[name]))
            missing -= needed[name]
        capacity.ready = dict.fromkeys(capacity.ready, 0)  # this job may use all of them
        return needed


class _Capacity:
    """Counts the processors of each site (another Pliant server) that a poll can still claim."""

    def __init__(self, settings: FederationSettings, seen: Observation) -> None:
        self._settings, self._seen = settings, seen
        stubs = [stub.site for stub in seen.stubs]
        #: Idle processors of each site.
        self.idle = {name: load.idle for name, load in seen.sites.items()}
        #: How many stubs may be added at each site.
        self._quota = {
            name: settings.sites[name].max_stubs - stubs.count(name) for name in seen.sites
        }
        #: Stubs in use that no job uses.
        self.ready: dict[str, int] = defaultdict(int)
        for name, node in seen.nodes.items():
            if node.state == "UP" and not node.used:
                self.ready[name.rpartition("-")[0]] += 1
        self._names = {*seen.nodes, *(stub.node for stub in seen.stubs)}
        self._serial = max((stub.claim.serial for stub in seen.stubs), default=0)

    def claimable(self) -> dict[str, int]:
        """Return how many stubs (jobs of size 1) can still be submitted at each site."""
        return {name: max(0, min(idle, self._quota[name])) for name, idle in self.idle.items()}

    def for_growth(self, site: str) -> int:
        """Return how many stubs a site can have for growth without delaying its own users.

        Stubs are placeholder jobs of size 1. The result is 0 if jobs of the site's users wait.
        """
        if self._seen.sites[site].has_queue:
            return 0
        idle = self.idle[site] - self._settings.sites[site].threshold
        return max(0, min(idle, self._quota[site]))

    def submit(self, job: GridJob, needed: dict[str, int], seen: Observation) -> list[Action]:
        """Return actions that submit stubs for a job, and subtract their processors from the sites.

        Args:
            job: the job for which the processors are claimed.
            needed: the number of stubs (placeholder jobs of size 1) by site.
            seen: the observation of this poll.
        """
        total = sum(needed.values())
        if not total:
            return []
        self._serial = max(self._serial + 1, int(seen.now))
        claim = Claim(job.id, self._serial, total)
        found: list[Action] = []
        for site, number in needed.items():
            if number:
                self.idle[site] -= number
                self._quota[site] -= number
                found.append(SubmitStubs(site, self._new_nodes(site, number), claim))
        return found

    def _new_nodes(self, site: str, number: int) -> tuple[str, ...]:
        """Return ``number`` new node names for stubs (placeholder jobs) at a site.

        No node and no stub has one of these names yet.
        """
        names: list[str] = []
        last = 0
        while len(names) < number:
            last += 1
            if (name := f"{site}-{last}") not in self._names:
                names.append(name)
        self._names.update(names)
        return tuple(names)
