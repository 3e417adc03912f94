"""The parts of a resize transaction that more than one handler needs: open, close, give back.

Until GO the server may end a transaction alone; from GO on the application decides.
"""

from pliant.core import overtime
from pliant.core.commands import Kill, Launch, SendOffer, SendWithdraw
from pliant.core.ids import JobId, ResizeId
from pliant.core.jobs import Exit, Job, Resize, ResizeStage
from pliant.core.lifecycle import JobState
from pliant.core.negotiation import (
    Direction,
    Item,
    Side,
    Talk,
    TalkState,
    Template,
    Verb,
)
from pliant.core.placement import after_resize
from pliant.core.processors import ProcessorMap, indices
from pliant.core.state import State
from pliant.core.timers import TimerKind
from pliant.core.words import many


def propose(
    state: State, job: Job, target: ProcessorMap, cause: str, by: Side
) -> tuple[Resize, Template]:
    """Open a transaction with a talk in which one side offers another allocation.

    Processors to be added are reserved at once.
    """
    number = ResizeId(state.next_resize)
    state.next_resize += 1
    after = after_resize(job.ranks, target)
    grows = len(after) > job.size
    until = state.now + state.limits.offer_timeout_s
    item = Item(
        kind="processors",
        quantity=abs(len(after) - job.size),
        direction=Direction.RECEIVE if grows else Direction.RELEASE,
        valid_until=until,
        sizes=str(len(after)),
    )
    template = Template(number, job.id, job.epoch, Verb.OFFER, (item,), round=1, reason=cause)
    talk = Talk(number).say(by, template)
    job.resize = Resize(number, ResizeStage.TALK, talk, state.now, job.ranks, after, cause)
    state.hold(job, job.resize.newcomers)
    return job.resize, template


def open_talk(state: State, job: Job, target: ProcessorMap, cause: str) -> None:
    """Offer a running job another allocation."""
    resize, template = propose(state, job, target, cause, Side.SERVER)
    state.emit(SendOffer(job.id, job.run, template))
    state.timer(TimerKind.OFFER, job, state.limits.offer_timeout_s)
    state.note(
        "offer.sent",
        f"offered {many(len(resize.after), 'processor')} instead of {job.size} ({cause})",
        job,
        resize=resize.id,
        direction=template.items[0].direction.value,
        size=len(resize.after),
        **{"from": job.size},
    )


def close(state: State, job: Job, reason: str, *, quiet: bool = False) -> None:
    """End a transaction without a change of size; its newcomers are ended, its promises dropped."""
    resize = job.resize
    if resize is None:
        return
    job.resize = None
    newcomers = resize.newcomers
    free_processors(state, job, resize.gone & ~job.allocation)
    if newcomers & job.held:
        if resize.stage is ResizeStage.TALK:
            free_processors(state, job, newcomers)
        else:
            state.emit(Kill(job.id, job.run, newcomers & job.held, 0.0))
    if quiet:
        job.quiet_until = state.now + state.limits.quiet_s
        state.timer(TimerKind.QUIET, job, state.limits.quiet_s)
    drop_promises_from(state, job)
    if job.state is JobState.ADAPTING:
        state.step(job, JobState.RUNNING, reason)
    elif job.state is JobState.RUNNING:
        job.reason = reason  # an offer that came to nothing is told, too
    state.touch(job)
    state.plan_due = True


def withdraw(state: State, job: Job, reason: str, *, quiet: bool = False) -> None:
    """Take an offer back that the server may still end alone."""
    resize = job.resize
    if resize is None:
        return
    if resize.talk.state is TalkState.OFFERED:
        resize.talk = resize.talk.say(
            Side.SERVER, Template(resize.id, job.id, job.epoch, Verb.WITHDRAW)
        )
    state.emit(SendWithdraw(job.id, job.run, resize.id, reason))
    state.note("offer.withdrawn", reason, job, resize=resize.id)
    close(state, job, reason, quiet=quiet)


def abandon(state: State, job: Job, reason: str) -> None:
    """Forget a transaction because its job ends; everything it holds is freed with the job."""
    resize = job.resize
    if resize is None:
        return
    if resize.stage in (ResizeStage.TALK, ResizeStage.PREPARE, ResizeStage.GO):
        state.emit(SendWithdraw(job.id, job.run, resize.id, reason))
        state.note("offer.withdrawn", reason, job, resize=resize.id)
    close(state, job, reason)


def newcomer_gone(state: State, job: Job, exit: Exit, what: str) -> None:
    """A newcomer ended before its resize was decided."""
    resize = job.resize
    if resize is None:
        return
    resize.gone |= 1 << exit.processor
    state.touch(job)
    reason = f"a newcomer on {state.place(exit.processor)} ended: {what}"
    if resize.stage is ResizeStage.PREPARE:
        withdraw(state, job, reason, quiet=True)
    elif resize.stage is ResizeStage.GO:
        ask_back(state, job, resize, reason)
    # Once begun, the application finds out by itself and reports; the deadline bounds it.


def ask_back(state: State, job: Job, resize: Resize, reason: str) -> None:
    """Ask back what was not begun; only the application's word (or end) closes the transaction."""
    resize.stage, resize.reason = ResizeStage.WITHDRAWING, reason
    state.emit(SendWithdraw(job.id, job.run, resize.id, reason))
    state.timer(TimerKind.DEADLINE, job, state.limits.resize_deadline_s)
    drop_promises_from(state, job)
    state.touch(job)
    state.plan_due = True


def finish_release(state: State, job: Job) -> None:
    """Close a committed shrink when its last leaver is gone."""
    resize = job.resize
    if resize is None or resize.stage is not ResizeStage.RELEASE or resize.leaving & job.held:
        return
    job.resize = None
    state.step(job, JobState.RUNNING, f"runs on {many(job.size, 'processor')}")


def free_processors(state: State, job: Job, gone: ProcessorMap) -> None:
    """Nobody's processes are on these any more."""
    released = job.held & gone
    if not released:
        return
    state.give_back(job, released)
    state.note(
        "processors.released",
        f"{many(released.bit_count(), 'processor')} back",
        job,
        processors=job.ranks if released == job.allocation else tuple(indices(released)),
    )
    if job.held & ~job.allocation or (job.held and job.state is JobState.COMPLETING):
        state.timer(TimerKind.SETTLE, job, state.limits.settle_s)
    else:
        state.plan_due = True


# ------------------------------------------------------------------ promises


def drop_promise(state: State, job: Job, reason: str = "waits its turn") -> None:
    """Forget the processors earmarked for a waiting job."""
    if job.earmark:
        state.unpromise(job)
        state.explain(job, reason)
        state.plan_due = True


def drop_promises_from(state: State, donor: Job) -> None:
    """The donor will not deliver: whoever waited for its processors waits in the queue again."""
    for job in list(state.promised.values()):
        if donor.id in job.earmark_from and job.earmark & donor.held:
            drop_promise(state, job, f"job {donor.id} did not give the processors; waits its turn")


def drop_promises_on(state: State, processors: ProcessorMap, reason: str) -> None:
    """These processors will not come: whoever waited for one of them waits in the queue again."""
    for job in list(state.promised.values()):
        if job.earmark & processors:
            drop_promise(state, job, reason)


def start_promised(state: State) -> None:
    """Start every waiting job whose earmarked processors are all free now."""
    if not state.promised:
        return
    unavailable = state.held() | ~state.usable()
    for job in list(state.promised.values()):
        if not job.earmark & unavailable:
            start(state, job, job.earmark)


def start(state: State, job: Job, processors: ProcessorMap) -> None:
    """Give a waiting job its processors and have its world started."""
    state.unpromise(job)
    job.allocate(processors)
    state.hold(job, processors)
    job.epoch += 1
    job.start = job.since = state.now
    job.done = 0.0
    job.starting = set(state.node_names(processors))
    state.step(job, JobState.STARTING, f"starts on {many(job.size, 'processor')}")
    state.emit(Launch(job.id, job.run, ResizeId(0), job.epoch, job.ranks))
    state.timer(TimerKind.START, job, state.limits.start_deadline_s)
    overtime.arm(state, job)
    state.note(
        "job.started",
        f"started on {many(job.size, 'processor')}",
        job,
        processors=job.ranks,
        epoch=job.epoch,
    )


def find(state: State, job_id: JobId, run: int, resize_id: ResizeId) -> tuple[Job, Resize] | None:
    """The job and its open transaction, if the message is about this one."""
    job = state.jobs.get(job_id)
    if job is None or job.run != run or job.resize is None or job.resize.id != resize_id:
        return None
    return job, job.resize
