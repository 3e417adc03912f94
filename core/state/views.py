"""Make the view of the state that strategies get."""

from dataclasses import replace
from sys import maxsize

from pliant.core.model.jobs import Job, JobSpec
from pliant.core.model.lifecycle import JobState
from pliant.core.model.nodes import NodeLoad
from pliant.core.model.resize import Withdrawing
from pliant.core.model.views_and_plans import (
    OpenRequest,
    PromisedJob,
    RunningJob,
    View,
    WaitingJob,
)
from pliant.core.state import named_resources, node_resources, user_processor_limits
from pliant.core.state.core_state import CoreState
from pliant.core.state.processor_ledger import ProcessorLedger
from pliant.core.state.view_cache import node_view
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import NONE
from pliant.core.values.sizes import Sizes
from pliant.core.values.speedup import speedup_of


def view(state: CoreState) -> View:
    """Return the present state as strategies see it.

    Values that have not changed since the last view are reused.
    """
    rows, ledger, accounting = state.rows, state.ledger, state.accounting
    _find_stale(state)
    for job_id in rows.stale:
        _renew(state, job_id)
    rows.stale.clear()
    return View(
        now=state.now,
        nodes=rows.nodes.values,
        waiting=rows.waiting.values,
        promised=rows.promised.values,
        running=rows.running.values,
        free=ledger.free,
        total=ledger.capacity[0],
        memory=state.memory,
        requests=_requests(state) if state.requests else (),
        suspended=_suspended(state) if state.suspended else (),
        amounts_left=node_resources.free_amounts(state)
        if state.node_bound or rows.nodes.has_gres
        else None,
        usage=() if accounting is None else accounting.rows,
        shares=None if accounting is None else accounting.shares,
        loads=_loads(state) if state.loads else {},
    )


def _loads(state: CoreState) -> dict[NodeName, NodeLoad]:
    """Return the last reported loads of usable nodes, without loads that are out of date."""
    return {
        name: load
        for name, (load, until) in state.loads.items()
        if state.now <= until and state.nodes[name].usable
    }


def view_with_new_job(
    state: CoreState, spec: JobSpec, now: float
) -> tuple[WaitingJob | None, View]:
    """Return the waiting job that a submission of ``spec`` would make, and the present view.

    The job is None if the cluster is too small for it at present.
    """
    job = Job(spec, JobState.PENDING)
    sums = zip(state.ledger.capacity, node_resources.capacity(state, job), strict=True)
    total, expected = map(min, sums)
    asked = waiting(job, total, expected, now)
    return asked, replace(view(state), now=now)


def waiting_for_begin(state: CoreState) -> list[WaitingJob]:
    """Return the jobs that only wait for their begin times, in the order of these times."""
    jobs = (job for job in state.waiting.values() if job.spec.begin is not None)
    at = [
        waiting(job, *_capacity(state, job.id), max(state.now, job.spec.arrival))
        for job in jobs
        if not job.is_eligible(state.now)
    ]
    return sorted((job for job in at if job is not None), key=lambda job: (job.arrival, job.id))


def _requests(state: CoreState) -> tuple[JobId, ...]:
    """Return the jobs that request more processors, in order of arrival."""
    asking = [
        (job.request.since, job.id)
        for job in state.requests.values()
        if job.request is not None and _request(job, _capacity(state, job.id)[0], state.now)
    ]
    return tuple(job_id for _, job_id in sorted(asking))


def _suspended(state: CoreState) -> tuple[WaitingJob, ...]:
    """Return the suspended jobs that the strategy may start again."""
    parked = [job for job in state.suspended.values() if job.suspended_by_strategy]
    parked.sort(key=lambda job: (job.spec.arrival, job.id))
    shown = [waiting(job, *_capacity(state, job.id), state.now) for job in parked]
    return tuple(job for job in shown if job is not None)


def fresh_view(state: CoreState) -> View:
    """Return the view without using the cache, to check that ``view`` returns the same."""
    ledger, accounting = state.ledger, state.accounting
    state.rows.limits = named_resources.limits(state)
    state.rows.below_limits = user_processor_limits.processors_below_limits(state)
    queue = sorted(state.waiting.values(), key=lambda job: (job.spec.arrival, job.id))
    shown = [
        waiting(job, *_capacity(state, job.id), state.now) for job in queue if not job.reserved
    ]
    nodes = sorted(state.nodes.values(), key=lambda node: node.first)
    return View(
        now=state.now,
        nodes=tuple(node_view(node) for node in nodes if node.usable),
        waiting=tuple(job for job in shown if job is not None),
        promised=tuple(promised(job) for job in queue if job.reserved),
        running=tuple(
            running(job, _capacity(state, job.id)[0], ledger, state.now)
            for job in sorted(state.active.values(), key=lambda job: (job.start or 0.0, job.id))
        ),
        free=ledger.free,
        total=ledger.capacity[0],
        memory=state.memory,
        requests=_requests(state),
        suspended=_suspended(state),
        amounts_left=node_resources.free_amounts(state),
        usage=() if accounting is None else accounting.rows,
        shares=None if accounting is None else accounting.shares,
        loads=_loads(state) if state.loads else {},
    )


def _capacity(state: CoreState, job_id: JobId) -> tuple[int, int]:
    """Return two numbers of processors that a job may have: without and with suspected nodes.

    The heartbeats of suspected nodes are overdue.
    """
    most = state.rows.limits.get(job_id, maxsize)
    if state.user_limits.limits_processors:
        most = min(most, user_processor_limits.max_processors(state, state.jobs[job_id]))
    total, expected = state.ledger.capacity
    if state.node_bound and job_id in state.node_bound:
        alone, later = node_resources.capacity(state, state.node_bound[job_id])
        total, expected = min(total, alone), min(expected, later)
    return min(total, most), min(expected, most)


def _find_stale(state: CoreState) -> None:
    """Mark the jobs that look different to strategies now, because something else has changed.

    This can be the time, the nodes, the named resources or the limits of users.
    """
    rows = state.rows
    rows.stale.update(dict.fromkeys(state.ledger.withheld))  # others may have reserved some
    if rows.capacity != state.ledger.capacity:
        rows.capacity = state.ledger.capacity
        rows.stale.update(dict.fromkeys(state.waiting))
        rows.stale.update(dict.fromkeys(state.active))
    if rows.node_version != rows.nodes.version:
        rows.node_version = rows.nodes.version
        rows.stale.update(dict.fromkeys(state.node_bound))
    if state.needing or rows.limits:
        limits = named_resources.limits(state)
        changed = limits.items() ^ rows.limits.items()
        rows.limits = limits
        rows.stale.update(dict.fromkeys(sorted({job_id for job_id, _ in changed})))
    if state.user_limits.limits_processors or rows.below_limits:
        below_limits = user_processor_limits.processors_below_limits(state)
        if below_limits != rows.below_limits:
            changed_users = {user for user, _ in below_limits.items() ^ rows.below_limits.items()}
            rows.below_limits = below_limits
            rows.stale.update(user_processor_limits.jobs_of(state, changed_users))
    if rows.quiet:
        over = [job_id for job_id, until in rows.quiet.items() if until <= state.now]
        for job_id in over:
            del rows.quiet[job_id]
        rows.stale.update(dict.fromkeys(over))


def _renew(state: CoreState, job_id: JobId) -> None:
    """Update a job in the cached view, which lists waiting, promised and running jobs.

    A job that strategies must not see now is removed.
    """
    rows = state.rows
    job = state.active.get(job_id)
    if job is not None:
        running_now = running(job, _capacity(state, job_id)[0], state.ledger, state.now)
        rows.put(rows.running, job.start or 0.0, job_id, running_now)
        if job.no_offers_until > state.now or job.no_growth_until > state.now:
            ends = (job.no_offers_until, job.no_growth_until)
            rows.quiet[job_id] = min(at for at in ends if at > state.now)
        return
    job = state.waiting.get(job_id)
    shown = (
        waiting(job, *_capacity(state, job_id), state.now)
        if job is not None and not job.reserved
        else None
    )
    if job is not None and shown is not None:
        rows.put(rows.waiting, job.spec.arrival, job_id, shown)
    elif job is not None and job.reserved:
        rows.put(rows.promised, job.spec.arrival, job_id, promised(job))
    else:
        rows.drop(job_id)
        if job is not None and job.spec.begin is not None and job.spec.begin > state.now:
            rows.quiet[job_id] = job.spec.begin


def waiting(job: Job, total: int, expected: int, now: float) -> WaitingJob | None:
    """Return a waiting job as strategies see it; None if they must not see it now.

    Strategies do not see a job that waits for other jobs, for other tasks of its array or for its
    begin time, or for which the cluster is too small now. Suspected nodes (with overdue heartbeats)
    may recover soon, so a job that needs them keeps its place in the queue.

    Args:
        job: the job.
        total: the number of processors that the job may have now.
        expected: the number that the job may have when suspected nodes have recovered.
        now: the present time, in seconds since the epoch.
    """
    sizes = job.sizes.up_to(total) or job.sizes.up_to(expected)
    if sizes is None or not job.is_eligible(now):
        return None
    spec = job.spec
    return WaitingJob(
        id=job.id,
        arrival=spec.arrival,
        sizes=sizes,
        estimate_s=_estimate(job),
        user=spec.user,
        requested=spec.estimated_for,
        speedup=spec.speedup,
        contract=spec.contract,
        accepted=job.promise is not None,
        priority=job.priority,
        needs=job.node_needs,
        account=spec.account,
        components=spec.components,
    )


def _estimate(job: Job) -> float | None:
    """Return the expected run time of a waiting job in seconds; None if there is no estimate.

    The work that its checkpoint contains is subtracted.
    """
    spec, checkpoint = job.spec, job.checkpoint
    if spec.estimate_s is None or checkpoint is None:
        return spec.estimate_s
    return max(0.0, spec.estimate_s - checkpoint.done / spec.speedup(spec.estimated_for))


def promised(job: Job) -> PromisedJob:
    """Return what strategies see of a waiting job for which processors are reserved."""
    return PromisedJob(
        job.id,
        job.spec.arrival,
        job.reserved,
        job.sizes,
        job.donors,
        job.spec.contract,
        job.node_needs,
    )


def running(job: Job, total: int, ledger: ProcessorLedger, now: float) -> RunningJob:
    """Return what strategies see of a job that has processors.

    Args:
        job: the job.
        total: largest number of processors that the job may have now.
        ledger: the processors that are reserved for jobs, or withheld until a job has ended.
        now: the present time, in seconds since the epoch.
    """
    spec, own = job.spec, job.sizes
    sizes = own.up_to(total) if job.resizable(now) else _reusable_sizes(job)
    if sizes is not None and now < job.no_growth_until:
        sizes = sizes.up_to(job.size)
    resizable = sizes is not None
    if sizes is None:
        sizes = own if own.fixed and own.min == job.size else Sizes((job.size,))
    return RunningJob(
        id=job.id,
        arrival=spec.arrival,
        started=job.start or 0.0,
        ranks=job.ranks,
        held=ledger.held_by(job.id, job.occupied) & ~ledger.reserved
        | (job.reserved if job.size_before_loss else NONE),
        sizes=sizes,
        resizable=resizable,
        estimate_s=spec.estimate_s,
        user=spec.user,
        requested=spec.estimated_for,
        speedup=job.speedup,
        contract=spec.contract,
        done=job.done,
        since=job.since,
        malleable=job.malleable and not job.sizes.fixed,
        moldable=not spec.sizes.fixed,
        target=_size_after_resize(job),
        suspendable=job.suspendable(now),
        request=_request(job, total, now) if job.request is not None else None,
        measured=speedup_of(job.measured) if job.measured else None,
        reluctant=job.refused_growths > 0,
        priority=job.priority,
        account=spec.account,
        leaving=job.is_leaving,
        needs=job.node_needs,
        migratable=job.migratable(now),
    )


def _request(job: Job, total: int, now: float) -> OpenRequest | None:
    """Return the growth that a job requests, to at most ``total`` processors.

    The result is None if the job requests no growth, or none that is possible.
    """
    request = job.request
    if request is None or request.is_shrink:
        return None
    larger = request.sizes.above(job.size)
    sizes = larger and larger.up_to(total)
    return OpenRequest(sizes, request.since, job.can_get_offers(now)) if sizes else None


def _reusable_sizes(job: Job) -> Sizes | None:
    """Return the sizes to which the next plan may shrink a job without another negotiation.

    The job has agreed to a shrink to them, or proposed it, and the plan that wanted the shrink
    does not use it any more. The present size is among them. None if there is no such shrink.
    """
    resize = job.resize
    if resize is None or not resize.reusable:
        return None
    return Sizes((*resize.offered_sizes, job.size))


def _size_after_resize(job: Job) -> int:
    """Return the size that a job has after its open resize, or its present size.

    The present size is returned if there is no resize, if it is being withdrawn, or if no plan
    uses it any more.
    """
    resize = job.resize
    if resize is None or resize.reusable or isinstance(resize.stage, Withdrawing):
        return job.size
    return len(resize.after)
