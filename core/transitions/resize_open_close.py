"""Steps of a resize transaction that several handlers need: open, offer, withdraw, close.

Also the processors of jobs: reserve, allocate and free them. The server may end a transaction alone
until it sends GO, the order to resize. From then on the application decides.
"""

from pliant.core.commands import Kill, Launch, SendOffer, SendWithdraw
from pliant.core.model.jobs import Exit, Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.negotiation import Negotiation, NegotiationState, Side, Verb
from pliant.core.model.processor_choice import after_resize
from pliant.core.model.resize import (
    BEFORE_GO,
    PROPOSED,
    Begun,
    Go,
    Preparing,
    Releasing,
    Resize,
    Withdrawing,
)
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.state import node_resources, relocations_in_progress
from pliant.core.state.core_state import CoreState
from pliant.core.support.plural import plural
from pliant.core.transitions import negotiation_messages, time_limits
from pliant.core.values.ids import JobId, ResizeId
from pliant.core.values.processors import ProcessorMap, indices

#: Failed negotiations after which a job gets no offers for a while. Without this limit, coordinated
#: negotiations could fail and begin again without end.
MAX_FAILED_NEGOTIATIONS = 3


def open_resize(
    state: CoreState, job: Job, after: tuple[int, ...], cause: str, *, mandatory: bool = False
) -> Resize:
    """Open a resize to the allocation ``after``, in rank order; no offer is sent yet.

    Added processors that are not reserved for the job are occupied at once.
    """
    number = ResizeId(state.next_resize)
    state.next_resize += 1
    job.resize = resize = Resize(
        number, Negotiation(number), state.now, job.ranks, after, cause, mandatory
    )
    state.negotiating[job.id] = job
    state.occupy(job, resize.added & ~job.reserved)
    return resize


def open_negotiation(
    state: CoreState, job: Job, target: ProcessorMap, cause: str, *, mandatory: bool = False
) -> None:
    """Open a resize of a running job and send the first offer."""
    after = after_resize(job.ranks, target)
    send_proposal(state, job, open_resize(state, job, after, cause, mandatory=mandatory))


def send_proposal(state: CoreState, job: Job, resize: Resize) -> None:
    """Send the next proposal of the server in a negotiation."""
    opens = resize.negotiation.proposer is None
    template = negotiation_messages.next_proposal(state, job, resize)
    item = template.items[0]
    stage = resize.negotiating()
    stage.counter, stage.expires_at = None, item.valid_until
    state.emit(SendOffer(job.id, job.run, template))
    state.timer(TimerKind.OFFER, job, state.limits.offer_timeout_s)
    price = f" for {item.price:g}" if item.price else ""
    last = ", a last word" if template.verb is Verb.FINAL else ""
    state.note(
        "offer.sent" if opens else "offer.repeated",
        f"offered {plural(len(resize.after), 'processor')} instead of {job.size}{price} "
        f"({resize.cause}{last})",
        job,
        resize=resize.id,
        direction=item.direction.value,
        size=len(resize.after),
        round=template.round,
        price=item.price,
        **{"from": job.size},
    )


def close(state: CoreState, job: Job, reason: str, *, quiet: bool = False) -> None:
    """Close a resize that does not change the size of the job.

    Joining ranks are ended and reservations dropped. With ``quiet``, or after several failed
    negotiations, the job gets no offers for at least ``limits.quiet_s`` seconds.
    """
    resize = job.resize
    if resize is None:
        return
    job.resize = None
    state.negotiating.pop(job.id, None)
    state.drop_reservation(job)
    added = resize.added
    free_processors(state, job, resize.gone & ~job.allocation)
    if added & job.occupied:
        if isinstance(resize.stage, PROPOSED):
            free_processors(state, job, added)
        else:
            state.emit(Kill(job.id, job.run, added & job.occupied, 0.0))
    if quiet or _failed_too_often(job, resize):
        _pause_offers(state, job, resize)
    drop_reservations_from(state, job)
    if job.state is JobState.ADAPTING:
        state.step(job, JobState.RUNNING, reason)
    elif job.state is JobState.RUNNING:
        job.reason = reason  # users see failed offers, too
    state.touch(job)
    state.plan_due = True


def _failed_too_often(job: Job, resize: Resize) -> bool:
    """Count a failed negotiation; return whether `MAX_FAILED_NEGOTIATIONS` have failed in a row."""
    if resize.negotiation.state is not NegotiationState.IDLE:  # else no offer was sent
        job.failed_negotiations += 1
    return job.failed_negotiations >= MAX_FAILED_NEGOTIATIONS


def _pause_offers(state: CoreState, job: Job, resize: Resize) -> None:
    """Make a pause of ``limits.quiet_s`` seconds in which a job gets no offers.

    The pause doubles with each consecutive growth that fails, because other jobs may have to shrink
    for each growth offer.
    """
    job.failed_negotiations = 0
    quiet_s = state.limits.quiet_s
    if resize.grows:
        quiet_s *= 1 << min(job.refused_growths, state.limits.quiet_doublings)
        job.refused_growths += 1
    job.no_offers_until = state.now + quiet_s
    state.timer(TimerKind.QUIET, job, quiet_s)


def withdraw(state: CoreState, job: Job, reason: str, *, quiet: bool = False) -> None:
    """Withdraw a resize that the application has not been ordered to carry out (GO).

    With ``quiet`` the job gets no offers for at least ``limits.quiet_s`` seconds.
    """
    resize = job.resize
    if resize is None:
        return
    negotiation = resize.negotiation
    if negotiation.proposer is Side.SERVER and not negotiation.closed:
        negotiation_messages.closing_message(job, resize, Verb.WITHDRAW, reason)
    if negotiation.state is not NegotiationState.IDLE:  # else no offer was sent
        state.emit(SendWithdraw(job.id, job.run, resize.id, reason))
        state.note("offer.withdrawn", reason, job, resize=resize.id)
    close(state, job, reason, quiet=quiet)


def abandon(state: CoreState, job: Job, reason: str) -> None:
    """Close the open resize of a job that ends. Its processors become free with the job."""
    resize = job.resize
    if resize is None:
        return
    if isinstance(resize.stage, (*BEFORE_GO, Go)):
        state.emit(SendWithdraw(job.id, job.run, resize.id, reason))
        state.note("offer.withdrawn", reason, job, resize=resize.id)
    close(state, job, reason)


def joining_rank_ended(state: CoreState, job: Job, exit: Exit, what: str) -> None:
    """Handle the exit of a joining rank before the application decided the resize.

    Args:
        state: the state.
        job: the job that grows.
        exit: the exit.
        what: how the rank ended, as text for users.
    """
    resize = job.resize
    if resize is None:
        return
    resize.gone |= 1 << exit.processor
    state.touch(job)
    if isinstance(resize.stage, Begun):
        _joining_rank_lost(state, job, resize, resize.stage, exit, what)
        return
    reason = f"a joining rank on {state.slot_name(exit.processor)} ended: {what}"
    if isinstance(resize.stage, Preparing):
        withdraw(state, job, reason, quiet=True)
    elif isinstance(resize.stage, Go):
        request_withdrawal(state, job, resize, reason)


def _joining_rank_lost(
    state: CoreState, job: Job, resize: Resize, stage: Begun, exit: Exit, what: str
) -> None:
    """Shorten the deadline of a resize that must be rolled back, because a joining rank has died.

    The application notices the death, because the coordinator has a connection to each joining
    rank. But a process that is stuck in an MPI call may never return from it.
    """
    if stage.reason:
        return  # only the first death is reported
    rank, place = resize.after.index(exit.processor), state.slot_name(exit.processor)
    reason = f"joining rank {rank} on {place} died while data were moving ({what})"
    resize.enter(Begun(stage.at, reason))
    state.note("job.warning", reason, job, resize=resize.id)
    state.timer(TimerKind.ROLLBACK, job, state.limits.rollback_timeout_s)


def request_withdrawal(state: CoreState, job: Job, resize: Resize, reason: str) -> None:
    """Ask the application to withdraw a resize that it has been ordered to carry out (GO).

    The resize stays open until the application answers or ends.
    """
    resize.enter(Withdrawing(reason))
    state.emit(SendWithdraw(job.id, job.run, resize.id, reason))
    state.timer(TimerKind.DEADLINE, job, state.limits.resize_deadline_s)
    drop_reservations_from(state, job)
    state.touch(job)
    state.plan_due = True


def finish_release(state: CoreState, job: Job) -> None:
    """Close a committed shrink once its last leaving rank has exited."""
    resize = job.resize
    if resize is None or not isinstance(resize.stage, Releasing):
        return
    if resize.leaving & job.occupied:
        return
    job.resize = None
    state.step(job, JobState.RUNNING, f"runs on {plural(job.size, 'processor')}")


def free_processors(state: CoreState, job: Job, gone: ProcessorMap) -> None:
    """Free processors on which no process of the job is left."""
    released = job.occupied & gone
    if not released:
        return
    state.give_back(job, released)
    state.note(
        "processors.released",
        f"{plural(released.bit_count(), 'processor')} back",
        job,
        processors=job.ranks if released == job.allocation else tuple(indices(released)),
        cause="end" if job.state is JobState.COMPLETING else "resize",
    )
    if job.occupied and job.state is JobState.COMPLETING:
        _withhold(state, job, released)
    elif job.occupied & ~job.allocation:
        state.timer(TimerKind.SETTLE, job, state.limits.settle_s)
    else:
        state.ledger.stop_withholding(job.id)
        state.plan_due = True


def _withhold(state: CoreState, job: Job, released: ProcessorMap) -> None:
    """Keep processors of an ending job until its other ranks have exited, or for a limited time.

    The ranks of a job exit one after the other. If each processor became free alone, a running job
    would grow by it, and shrink again for a waiting job that needs several processors.
    """
    if job.id not in state.ledger.withheld:  # later exits do not extend the time
        state.timer(TimerKind.WITHHELD, job, state.limits.release_timeout_s)
    state.ledger.withhold(job.id, released)


def on_withheld_timeout(state: CoreState, timer: Timer) -> None:
    """Release the withheld processors of an ending job whose last ranks exit too late."""
    job = state.job_of(timer)
    if job is not None:
        use_withheld(state, job)


def use_withheld(state: CoreState, job: Job) -> None:
    """Stop withholding the free processors of an ending job, so that strategies can use them."""
    if state.ledger.stop_withholding(job.id):
        state.rows.stale[job.id] = None
        state.plan_due = True


# ------------------------------------------------------------------ reservations


def drop_reservation(state: CoreState, job: Job, reason: str = "waits in the queue") -> None:
    """Drop the reservation of a job; if it has an open resize, withdraw that instead."""
    if not job.reserved:
        return
    if job.resize is not None:
        withdraw(state, job, reason)
        return
    relocations_in_progress.abandon(state, job, reason)
    state.drop_reservation(job)
    state.explain(job, reason)
    state.plan_due = True


def drop_reservations_from(state: CoreState, donor: Job) -> None:
    """Drop the reservations that depend on a donor, which will not give up its processors."""
    for job in list(state.reserving.values()):
        if donor.id in job.donors and job.reserved & donor.occupied:
            drop_reservation(
                state, job, f"job {donor.id} did not give the processors; waits in the queue"
            )


def drop_reservations_on(state: CoreState, processors: ProcessorMap, reason: str) -> None:
    """Drop the reservations of these processors, because they will not become free.

    Reservations of jobs that restart on their own processors stay: ``refit_restarts`` changes them.
    """
    for job in list(state.reserving.values()):
        if job.reserved & processors and not job.size_before_loss:
            drop_reservation(state, job, reason)


def start_reserved(state: CoreState) -> None:
    """Start each waiting job whose reserved processors are all free."""
    if not state.reserving:
        return
    unavailable = state.occupied() | ~state.usable()
    for job in list(state.reserving.values()):
        if job.state is not JobState.PENDING or job.reserved & unavailable:
            continue
        # Since the order to move, a node may have lost the folder of checkpoints, for example.
        if job.is_moving and (wrong := node_resources.wrong_nodes(state, job, job.reserved)):
            relocations_in_progress.abandon(state, job, wrong)
        else:
            start(state, job, job.reserved)


def start(state: CoreState, job: Job, processors: ProcessorMap) -> None:
    """Allocate processors to a waiting job and start its processes."""
    state.drop_reservation(job)
    job.allocate(processors)
    state.occupy(job, processors)
    job.epoch += 1
    job.start = job.since = state.now
    job.done, job.used_s = 0.0, 0.0
    job.computed_s.clear()
    if job.checkpoint is not None:  # the new run continues with the work that it contains
        job.done, job.used_s = job.checkpoint.done, job.checkpoint.used_s
    job.starting = set(state.node_names(processors))
    job.isolation_grace_s = state.limits.isolation_grace_s(job.spec.stop_after_s)
    state.step(job, JobState.STARTING, f"starts on {plural(job.size, 'processor')}")
    shares = node_resources.shares(state, job, job.ranks) if job.node_needs else {}
    state.emit(Launch(job.id, job.run, ResizeId(0), job.epoch, job.ranks, shares=shares))
    state.timer(TimerKind.START, job, state.limits.start_deadline_s)
    time_limits.arm_timers(state, job)
    state.note(
        "job.started",
        f"started on {plural(job.size, 'processor')}",
        job,
        processors=job.ranks,
        epoch=job.epoch,
    )


def find_resize(
    state: CoreState, job_id: JobId, run: int, resize_id: ResizeId
) -> tuple[Job, Resize] | None:
    """Return the job and its open resize that a message names; None if the message is outdated."""
    job = state.jobs.get(job_id)
    if job is None or job.run != run or job.resize is None or job.resize.id != resize_id:
        return None
    return job, job.resize
