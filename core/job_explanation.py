"""Explain the state of a job in sentences for ``jobctl why``."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from pliant.core.arrays.progress import ArrayProgress
from pliant.core.model.checkpoint import SaveStage
from pliant.core.model.jobs import Job, JobClass
from pliant.core.model.lifecycle import JobState
from pliant.core.model.resize import ResizeStage
from pliant.core.model.wait_reasons import sentence
from pliant.core.state import (
    named_resources,
    node_resources,
    profit_contract_status,
    relocations_in_progress,
    user_processor_limits,
)
from pliant.core.state.core_state import CoreState
from pliant.core.support.plural import plural
from pliant.core.transitions.negotiation_messages import grow_if
from pliant.core.values.ids import JobId
from pliant.core.values.lost_contact_policy import isolation_policy
from pliant.core.values.negotiation_policy import GrowIf
from pliant.core.values.processors import count

if TYPE_CHECKING:
    from pliant.core.state_machine import Core

#: Most jobs that are named in one sentence.
_MOST_NAMES = 5

_STAGES = {
    ResizeStage.NEGOTIATING: "offered; the application has not answered",
    ResizeStage.AGREED: "agreed; it waits for answers of other jobs, or for the agreed time",
    ResizeStage.PREPARE: "agreed; joining ranks start, or the next coordinator connects",
    ResizeStage.GO: "the application resizes at its next safe point",
    ResizeStage.BEGUN: "the application is at its safe point and moves its data",
    ResizeStage.WITHDRAWING: "withdrawn; the application has not confirmed it yet",
    ResizeStage.RELEASING: "done; the leaving ranks are ending",
}

_GROWS_IF = {
    GrowIf.GAIN: "its library refuses a growth that gains less time than the move costs, by what "
    "it has measured; jobsub --grow-if always lets it take all",
    GrowIf.ALWAYS: "its library takes every growth; its program may still refuse",
}

_SAVE_STAGES = {
    SaveStage.ORDERED: "the application saves at its next safe point",
    SaveStage.SAVING: "the application is at its safe point and saves",
    SaveStage.WITHDRAWING: "withdrawn because no safe point was reached; not confirmed yet",
    SaveStage.LEAVING: "saved; its processes are ending",
}


def explain(
    core: "Core", job_id: JobId, now: float, progress: Mapping[str, Any] | None = None
) -> list[str]:
    """Return the lines that ``jobctl why`` prints about a job.

    Args:
        core: the core.
        job_id: the job.
        now: seconds since the epoch.
        progress: the application's last progress report.

    Raises:
        KeyError: there is no such job.
    """
    return list(_lines(core.state, core.jobs[job_id], now, progress))


def _lines(
    state: CoreState, job: Job, now: float, progress: Mapping[str, Any] | None
) -> Iterator[str]:
    why = _why(state, job)
    what = "array" if job.progress is not None else "job"
    yield f"{what} {job.spec.title} ({job.spec.name}) is {job.state}" + (f": {why}" if why else "")
    if job.progress is not None:
        yield from _array(job, job.progress)
    elif job.state is JobState.PENDING:
        yield from _waiting(state, job, now)
        yield from _saved(job, now)
    elif job.state is JobState.SUSPENDED:
        yield from _saved(job, now)
        yield f"`jobctl resume {job.spec.title}` continues it"
    elif not job.final and job.state is not JobState.HELD:
        yield from _running(state, job, now)
        yield from _safe_point(job, progress)
    if job.relocation is not None:
        yield relocations_in_progress.describe(job, now)
    yield from profit_contract_status.lines(job, now)
    if job.priority:
        yield f"its priority is {job.priority}; the default is 0, and higher ones go first"
    yield f"strategy: {state.strategy}"


def _why(state: CoreState, job: Job) -> str:
    """Return the reason for a job's state. For a waiting job, it says what is free now."""
    if job.wait is None:
        return job.reason
    # For the reason that most jobs share, only the plan's own copy has live numbers.
    shared = state.default_wait_reason == job.wait and job.id not in state.explained
    return sentence(state.default_wait_reason if shared else job.wait, job.sizes.min, now=True)


def _array(array: Job, progress: ArrayProgress) -> Iterator[str]:
    tasks = array.spec.tasks
    assert tasks is not None
    left = f" ({progress.pending})" if progress.pending else ""
    in_queue = len(progress.waiting) + len(progress.behind)
    yield (
        f"of its {plural(len(tasks.numbers), 'task')}, {progress.running} run, {in_queue} are next "
        f"in the queue, {len(progress.pending)} follow{left} and {progress.ended} have ended"
    )
    if tasks.limit is not None:
        yield f"at most {tasks.limit} of them may run at once"
    if number := next(iter(progress.waiting), None):
        yield f"`jobctl why {array.id}_{number - array.id - 1}` tells why the next one waits"


def _waiting(state: CoreState, job: Job, now: float) -> Iterator[str]:
    ahead = sum(1 for other in state.waiting.values() if other.spec.submit < job.spec.submit)
    yield (
        f"it wants {plural(str(job.sizes), 'processor')}; {count(state.free())} of "
        f"{count(state.usable())} usable ones are free; {plural(ahead, 'job')} submitted before it "
        f"{'waits' if ahead == 1 else 'wait'}"
    )
    for need in job.spec.resources:
        there = state.resources.get(need.name, 0)
        left = max(0, named_resources.free(state).get(need.name, 0))
        yield f"it needs resource {need}; {left} of {there} are free"
    if job.node_needs is not None:
        fits = count(node_resources.usable_by(state, job, state.free()))
        yield f"it needs of its nodes: {job.node_needs}; {fits} free processors fit it"
    limit = state.user_limits.of(job.spec.user).running_processors
    if limit is not None:
        has = user_processor_limits.used(state).get(job.spec.user, 0)
        yield f"{job.spec.user} may use {plural(limit, 'processor')} at once and has {has}"
    if state.plan_fault:
        yield f"the strategy failed ({state.plan_fault}): it is asked again soon"
    if job.size_before_loss:
        yield f"{plural(count(job.reserved), 'processor')} kept for it: it starts when all are free"
    elif job.reserved and not job.is_moving:
        names = ", ".join(map(str, sorted(job.donors)))
        donors = "job" if len(job.donors) == 1 else "jobs"
        yield f"{plural(count(job.reserved), 'processor')} promised to it, from {donors} {names}"
    yield from _not_malleable_yet(state)
    yield from _recent_refusals(state, now)


def _cannot_move(state: CoreState, job: Job) -> Iterator[str]:
    """Yield a sentence about a job that causes paging but cannot be moved to another node."""
    may_begin_again = job.spec.requeue is True
    if job.malleable or (may_begin_again and job.relocation is None):
        return
    loads = [load for load, until in state.loads.values() if state.now <= until]
    if any(each.job == job.id for load in loads for each in load.faulting):
        why_not = "was moved once already" if may_begin_again else "was submitted without --requeue"
        yield (
            "it has major page faults, and cannot be moved to a node with more memory: its program "
            f"has not registered with pliant.appkit, or not yet, and it {why_not}"
        )


def _not_malleable_yet(state: CoreState) -> Iterator[str]:
    """Yield a sentence about the jobs that could have other sizes, but cannot be resized now."""
    fixed = [
        job
        for job in state.active.values()
        if not (job.sizes.fixed or job.malleable or job.state is JobState.COMPLETING)
    ]
    if fixed:
        yield (
            f"cannot be resized: {_names(fixed)}; a program can when it has registered with "
            "pliant.appkit"
        )


def _recent_refusals(state: CoreState, now: float) -> Iterator[str]:
    """Yield a sentence about jobs that get no offers now, as they refused one or were moved."""
    quiet = [job for job in state.active.values() if job.malleable and job.no_offers_until > now]
    if quiet:
        soonest = min(job.no_offers_until for job in quiet) - now
        yield (
            f"recently refused another size, or moved: {_names(quiet)}; next offer in "
            f"{soonest:.0f} s"
        )


def _names(jobs: Sequence[Job]) -> str:
    names = ", ".join(str(job.id) for job in jobs[:_MOST_NAMES])
    more = f" and {len(jobs) - _MOST_NAMES} more" if len(jobs) > _MOST_NAMES else ""
    return f"{'job' if len(jobs) == 1 else 'jobs'} {names}{more}"


def _saved(job: Job, now: float) -> Iterator[str]:
    checkpoint = job.checkpoint
    if checkpoint is not None:
        yield (
            f"its last checkpoint was taken {now - checkpoint.time:.1f} s ago at iteration "
            f"{checkpoint.iteration} on {plural(checkpoint.size, 'processor')}"
        )


def _cut_off(job: Job, now: float) -> Iterator[str]:
    """Yield sentences about lost nodes on which the job's processes will end automatically."""
    policy = isolation_policy(job.spec.stop_after_s)
    for name, entry in job.isolated.items():
        if entry.back:
            yield f"node {name} is back and ends its processes: no other run of it starts before"
        elif entry.until < inf:
            yield (
                f"its processes on node {name}, which was lost, end by themselves ({policy}): "
                f"surely gone in {max(0.0, entry.until - now):.0f} s, no other run starts before"
            )
        else:
            yield f"node {name} has not reported yet what became of its processes ({policy})"


def _time_left(state: CoreState, job: Job, now: float) -> Iterator[str]:
    """Yield sentences about the job's time limit and expected end."""
    spec, end = job.spec, job.expected_end
    if spec.time_limit_s is not None and job.start is not None and job.progress is None:
        left = max(0.0, job.start + spec.time_limit_s - job.used_s - now)
        yield f"it is ended at its time limit of {spec.time_limit_s:g} s, in {left:.0f} s"
    if spec.estimate_s is None or end is None:
        return
    when = f"in {end - now:.0f} s" if end > now else f"{now - end:.0f} s ago"
    measured = ", corrected by measured iterations" if job.speedup != spec.speedup else ""
    yield (
        f"its estimate is {spec.estimate_s:g} s on {plural(spec.estimated_for, 'processor')}, "
        f"speedup {spec.speedup}{measured}: expected to end {when}"
    )
    if state.ends_at_estimate:
        yield f"strategy {state.strategy} promises starts by estimates and ends it when it is over"
    else:
        yield "its estimate is for planning only and does not end it"


def _running(state: CoreState, job: Job, now: float) -> Iterator[str]:
    kind = job.job_class
    yield f"it is {kind} on {plural(job.size, 'processor')}, sizes {job.sizes}, epoch {job.epoch}"
    if kind is JobClass.MOLDABLE:
        yield "its program has not registered with pliant.appkit, so it cannot be resized"
    if job.registration is not None and not job.registration.connected:
        yield "its coordinator is not connected, so it cannot be resized now"
    yield from _cannot_move(state, job)
    if job.node_needs is not None:
        yield f"it needs of its nodes: {job.node_needs}"
    if job.malleable and not job.sizes.fixed:
        yield _GROWS_IF[GrowIf.ALWAYS if job.size_fixed_by_operator else grow_if(state, job)]
    if job.size_fixed_by_operator:
        yield f"an operator fixed its size; `jobctl resize {job.id} 0` lets the strategy resize it"
    if job.no_offers_until > now:
        yield f"it is not asked again for {job.no_offers_until - now:.0f} s"
    if job.evolving_only:
        yield "its size changes only when its program asks for that"
    yield from _time_left(state, job, now)
    yield from _saved(job, now)
    if job.size_before_loss:
        before = plural(job.size_before_loss, "processor")
        yield (
            f"{count(job.reserved)} of its {before} are kept for it until its processes have "
            "ended: if a node was lost, it continues there"
        )
    if job.spec.stop_after_s is not None:
        policy = isolation_policy(job.spec.stop_after_s)
        yield f"its processes on a node that is cut off from the server end there ({policy})"
    yield from _cut_off(job, now)
    mine = job.saving
    if mine is not None:
        yield (
            f"suspension {mine.number}, asked {now - mine.since:.1f} s ago {mine.cause}: "
            f"{_SAVE_STAGES[mine.stage]}"
        )
    request = job.request
    if request is not None:
        until = "" if request.deadline is None else f", for {request.deadline - now:.0f} s more"
        why = f" ({request.reason})" if request.reason else ""
        yield (
            f"request {request.number}: its program asked {now - request.since:.1f} s ago for "
            f"{plural(str(request.sizes), 'processor')}{why}: {_waits(job)}{until}"
        )
    resize = job.resize
    if resize is not None:
        after = plural(len(resize.after), "processor")
        yield (
            f"resize {resize.id}: {len(resize.before)} -> {after}, "
            f"asked {now - resize.since:.1f} s ago by {resize.cause}: {_STAGES[resize.stage.name]}"
            + (f": {resize.reason}" if resize.reason else "")
        )


def _waits(job: Job) -> str:
    """Return why the server cannot grant a job's open request for another size yet."""
    if job.resize is not None:
        return f"waits for the end of resize {job.resize.id}"
    if not job.connected:
        return "waits for its coordinator to connect"
    return "waits until enough processors are available"


def _safe_point(job: Job, progress: Mapping[str, Any] | None) -> Iterator[str]:
    if not job.malleable:
        return
    age = (progress or {}).get("safe_point_age_s")
    if age is None:
        yield "it has not reported any progress"
    elif age < 0:
        yield "it has not reached a safe point yet"
    else:
        yield f"its last safe point was {age:.1f} s ago"
    speeds = (progress or {}).get("seconds_per_iteration")
    if speeds:
        *others, last = speeds
        told = [f"{speeds[size]:.3g} s on {size}" for size in others]
        told.append(f"{speeds[last]:.3g} s on {plural(last, 'processor')}")
        yield f"an iteration takes {', '.join(told)}, as it has measured"
