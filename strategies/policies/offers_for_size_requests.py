"""Requests of running applications for more processors, served in addition to any strategy.

In Ghafoor (3.1.1.4) the resource manager gives idle processors first, then what malleable jobs can
spare, then a part of what was requested. ``WithSizeRequests`` does so for every strategy. It calls
the strategy and adds offers to its plan. If there are no requests, the strategy's plan is returned
as it is.

Requests are served in order of arrival. If the option ``requests`` is ``first``, they are served
before the strategy plans, and the strategy sees the cluster without the processors that were used.
A request is offered the largest of its sizes that fits into the idle processors and those of
malleable jobs above their minima. The earliest started jobs are asked first. A job gives processors
only after the requesting application has accepted an offer (core/handlers/donor_negotiation.py).
Jobs with an open request give nothing.

With ``last`` the strategy plans first, and requests get what it leaves idle; no job is asked to
give. In both cases a request that cannot get anything stays open. A job that runs within one of
several clusters grows within this cluster only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from pliant.core.model.processor_choice import grow, keep_first
from pliant.core.model.views_and_plans import (
    Availability,
    Offer,
    OpenRequest,
    Outcome,
    Plan,
    RunningJob,
    View,
    WaitingJob,
)
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, ProcessorMap, count, from_indices, lowest
from pliant.core.values.sizes import Sizes
from pliant.strategies.interface.base import Strategy
from pliant.strategies.nodes.node_profile import free_capacity_of
from pliant.strategies.nodes.plan_on_nodes import availability, plan_on_nodes
from pliant.strategies.policies.donors import donors_of
from pliant.strategies.policies.placement import processors_by_cluster, usable_processors

Turn = Literal["first", "last"]
#: Plans for a view without the requests in it.
Planner = Callable[[View], Plan]


class WithSizeRequests(Strategy):
    """A strategy that also makes offers to running jobs that have requested processors.

    Args:
        inner: the strategy that plans everything else.
        requests: whether requests of running jobs are served before it or after it.
    """

    def __init__(self, inner: Strategy, *, requests: Turn = "first") -> None:
        self.inner = inner
        self.spans_clusters = inner.spans_clusters
        self.uses_usage = inner.uses_usage
        self._serve = _serve_first if requests == "first" else _serve_last

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Return when a job could start: the answer of the inner strategy, or a later time.

        The time is later if the nodes that suit the job are not free.
        """
        answer = self.inner.is_available(job, view)
        return answer if view.amounts_left is None else availability(job, view, answer)

    def allocate_processors(self, view: View) -> Plan:
        """Return the inner strategy's plan, with offers to jobs that request processors."""
        return self._plan(view, ())

    def revise(self, view: View, outcomes: Sequence[Outcome]) -> Plan:
        """Return the inner strategy's revised plan, with offers to jobs that request processors."""
        return self._plan(view, outcomes)

    def _plan(self, view: View, outcomes: Sequence[Outcome]) -> Plan:
        def plan_inner(shown: View) -> Plan:
            return _inner_plan(self.inner, shown, outcomes)

        return self._serve(plan_inner, view) if view.requests else plan_inner(view)


def with_size_requests(strategy: Strategy) -> Strategy:
    """Return the strategy with offers for size requests added, unless it makes them already."""
    return strategy if isinstance(strategy, WithSizeRequests) else WithSizeRequests(strategy)


#: The old name of ``with_size_requests``, kept for one release.
served = with_size_requests


def _inner_plan(inner: Strategy, view: View, outcomes: Sequence[Outcome]) -> Plan:
    """Return a strategy's plan. If nodes differ, each job in it gets processors that suit it."""
    if view.amounts_left is None:
        return inner.plan(view, outcomes)
    return plan_on_nodes(view, lambda shown: inner.plan(shown, outcomes))


def _serve_first(plan_inner: Planner, view: View) -> Plan:
    allocation = _Allocation(view)
    for job, request in _open_requests(view):
        allocation.serve(job, request)
    if not allocation.changed:
        return plan_inner(view)
    return _with_offers(
        plan_inner(allocation.remaining_view()),
        allocation.shrinks(),
        allocation.expands,
    )


def _serve_last(plan_inner: Planner, view: View) -> Plan:
    plan = plan_inner(view)
    offered = {offer.job for offer in (*plan.shrinks, *plan.expands)}
    offered |= {wish.job for wish in plan.suspends}
    free = view.free
    for start in plan.starts:
        free &= ~start.processors
    for offer in plan.expands:
        free &= ~offer.processors
    expands = []
    parts = processors_by_cluster(view.nodes)
    capacity = free_capacity_of(view)
    needs = {job.id: job.needs for jobs in (view.waiting, view.running) for job in jobs}
    for start in plan.starts:
        capacity.take(needs.get(start.job), start.processors & view.free)
    for job in view.running:
        for offer in plan.expands:
            if offer.job == job.id:
                capacity.take(job.needs, offer.processors & view.free)
    for job, request in _open_requests(view):
        idle = capacity.fitting(job.needs, free & _growth_area(job, parts))
        size = request.sizes.largest_at_most(job.size + count(idle))
        if size > job.size and job.id not in offered:
            added = grow(job.ranks, idle, size - job.size, view.nodes)
            free &= ~added
            capacity.take(job.needs, added)
            expands.append(Offer(job.id, from_indices(job.ranks) | added))
    return _with_offers(plan, (), expands)


def _with_offers(plan: Plan, shrinks: Sequence[Offer], expands: Sequence[Offer]) -> Plan:
    """Return a copy of a plan with additional offers."""
    return replace(plan, shrinks=(*shrinks, *plan.shrinks), expands=(*expands, *plan.expands))


def _open_requests(view: View) -> list[tuple[RunningJob, OpenRequest]]:
    """Return the requests that can be served now, in order of arrival."""
    jobs = {job.id: job for job in view.running}
    found = [(jobs[number], jobs[number].request) for number in view.requests if number in jobs]
    return [(job, request) for job, request in found if request is not None and request.ready]


def _growth_area(job: RunningJob, parts: Mapping[str, ProcessorMap]) -> ProcessorMap:
    """Return the processors onto which a job may grow.

    A job that runs within one of several clusters may grow only there, any other job everywhere.
    """
    own = from_indices(job.ranks)
    home = [part for part in parts.values() if part & own]
    return home[0] if len(parts) > 1 and len(home) == 1 and not own & ~home[0] else ~NONE


class _Allocation:
    """The processors that a plan gives to requests of running jobs, and those that are left."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._usable = usable_processors(view.nodes)
        self._parts = processors_by_cluster(view.nodes)
        self._free = view.free
        self._capacity = free_capacity_of(view)
        self.expands: list[Offer] = []
        #: Free processors that each job is offered.
        self._taken: dict[JobId, ProcessorMap] = {}
        #: Sizes that donors are asked to shrink to.
        self._shrunk: dict[JobId, int] = {}
        asking = set(view.requests)
        self._donors = sorted(
            (job for job in donors_of(view) if job.id not in asking),
            key=lambda job: (job.started, job.id),
        )

    @property
    def changed(self) -> bool:
        """Return whether a request got processors, so that the strategy must get another view."""
        return bool(self._taken)

    # ---------------------------------------------------------------- serving

    def serve(self, job: RunningJob, request: OpenRequest) -> None:
        """Plan to offer a job the largest requested size that idle and donors' processors allow."""
        area = _growth_area(job, self._parts) & self._capacity.accepted(job.needs)
        idle = self._capacity.fitting(job.needs, self._free & area)
        if job.needs is not None and job.needs.amounts:
            # Donors give processors, but perhaps too little memory or too few devices.
            area &= idle
        spare = sum(count(self._gain(donor, donor.sizes.min) & area) for donor in self._donors)
        size = request.sizes.largest_at_most(job.size + count(idle) + spare)
        need = size - job.size
        if need <= 0:
            return
        added = grow(job.ranks, idle, min(need, count(idle)), self._view.nodes)
        given = self._collect(need - count(added), area)
        self._free &= ~added
        self._capacity.take(job.needs, added)
        self._taken[job.id] = added
        self.expands.append(Offer(job.id, from_indices(job.ranks) | added | given))

    def _collect(self, need: int, area: ProcessorMap) -> ProcessorMap:
        """Plan shrinks of donors that give ``need`` processors, and return these processors.

        ``area`` has the processors onto which the requesting job may grow.
        """
        given = NONE
        for donor in self._donors:
            lacking = need - count(given)
            if lacking <= 0:
                break
            part = self._shrink(donor, lacking, area)
            given |= lowest(part, min(lacking, count(part)))
        return given

    def _shrink(self, donor: RunningJob, need: int, area: ProcessorMap) -> ProcessorMap:
        """Plan to shrink a donor by up to ``need`` processors, and return the processors it gives.

        ``area`` has the processors onto which the requesting job may grow.
        """
        before = self._shrunk.get(donor.id, donor.size)
        size = donor.sizes.largest_at_most(before - need) or donor.sizes.min
        # Some of its processors may be unusable, so the donor may have to shrink further.
        while size > donor.sizes.min and count(self._gain(donor, size) & area) < need:
            size = donor.sizes.largest_at_most(size - 1)
        given = self._gain(donor, size) & area
        if given:
            self._shrunk[donor.id] = size
        return given

    def _gain(self, donor: RunningJob, size: int) -> ProcessorMap:
        """Return the usable processors that a donor gives if it shrinks to ``size``.

        Those that it gives for earlier requests are not included.
        """
        before = self._shrunk.get(donor.id, donor.size)
        return from_indices(donor.ranks[size:before]) & self._usable

    # ---------------------------------------------------------------- results

    def shrinks(self) -> list[Offer]:
        """Return the offers that shrink the donors."""
        return [
            Offer(job.id, keep_first(job.ranks, self._shrunk[job.id]))
            for job in self._donors
            if job.id in self._shrunk
        ]

    def remaining_view(self) -> View:
        """Return the view for the strategy, without the processors that size requests got.

        In this view the requesting jobs have these processors already.
        """
        running = tuple(self._seen_by_strategy(job) for job in self._view.running)
        left = None if self._view.amounts_left is None else self._capacity.amounts_left()
        return replace(self._view, running=running, free=self._free, requests=(), amounts_left=left)

    def _seen_by_strategy(self, job: RunningJob) -> RunningJob:
        taken = self._taken.get(job.id)
        if taken is None and job.id not in self._shrunk:
            return job
        return replace(
            job,
            held=job.held | (taken or NONE),
            sizes=Sizes((job.size,)),
            resizable=False,
            suspendable=False,  # It has an offer.
            target=job.size,
        )
