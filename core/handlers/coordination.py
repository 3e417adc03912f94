"""Deals: a job that waits for processors, and the jobs that are asked to give them.

Who waits is a job in the queue, or one that asked for more (its growth waits). Its processors are
earmarked, its *donors* are named (``Job.earmark``, ``Job.earmark_from``). Donors are asked side by
side, and no one gets GO before all have answered and the answers suffice: a resize is not begun for
nothing. If they do not suffice, what was agreed on *stands* until the strategy has planned again:
a plan may use it, else it is withdrawn (Ghafoor 3.2.2.3: schedule, negotiate, schedule again).
"""

from collections.abc import Iterable, Iterator

from pliant.core.commands import SendOffer
from pliant.core.model.jobs import BEFORE_GO, Job, Resize, ResizeStage
from pliant.core.model.negotiation import Side, TalkState, Verb
from pliant.core.model.scheduling import Outcome
from pliant.core.model.timers import TimerKind
from pliant.core.state.state import State
from pliant.core.support.plural import many
from pliant.core.transitions import counter_offers, resize_steps, resize_transaction
from pliant.core.transitions.proposals import own, word
from pliant.core.transitions.refused_offers import failed
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, ProcessorMap, count, indices, lowest, of


def review(state: State) -> None:
    """After the events of an instant: conclude deals, carry them out, let go of what is void."""
    for job in list(state.promised.values()):
        if job.earmark:
            _review(state, job)
    while state.bereft:
        donors = list(state.bereft)
        state.bereft.clear()
        for donor in donors:
            _review_donor(state, donor)


def _review(state: State, taker: Job) -> None:
    """A job that waits for processors: whether its donors' answers suffice."""
    donors = list(_donors(state, taker))
    if any(_unanswered(donor) for donor in donors):
        return
    growth = taker.resize
    if growth is not None and growth.stage is ResizeStage.TALK:
        if growth.talk.state is TalkState.IDLE:
            _offer_growth(state, taker, growth)
    elif donors and not _conclude(state, taker, donors):
        _dissolve(state, taker, donors)
    elif growth is not None and not taker.earmark & (state.held() | ~state.usable()):
        state.hold(taker, taker.earmark)
        state.unpromise(taker)
        proceed(state, taker, growth)


def _donors(state: State, taker: Job) -> Iterator[Job]:
    """Who is to give to a job, and has not begun to."""
    for number in sorted(taker.earmark_from):
        donor = state.talking.get(number)
        resize = donor.resize if donor is not None else None
        if donor and resize and resize.serves and resize.leaving & taker.earmark:
            yield donor


def _release(donor: Job) -> Resize:
    """The open resize of a job that is known to have one."""
    assert donor.resize is not None
    return donor.resize


def _takers(state: State, donor: Job, resize: Resize) -> Iterator[Job]:
    """Who waits for what a job gives, in order of promise."""
    for job in state.promised.values():
        if donor.id in job.earmark_from and job.earmark & resize.leaving:
            yield job


def _unanswered(donor: Job) -> bool:
    resize = _release(donor)
    return resize.stage is ResizeStage.TALK and resize.talk.proposer is not Side.APPLICATION


def need(state: State, donor: Job) -> int:
    """How many of a donor's processors are waited for; 0: nobody waits."""
    resize = donor.resize
    if resize is None or not resize.serves:
        return 0
    return sum(count(job.earmark & resize.leaving) for job in _takers(state, donor, resize))


# ------------------------------------------------------------------ how a plan makes them


def await_growth(
    state: State,
    job: Job,
    now: ProcessorMap,
    later: ProcessorMap,
    donors: frozenset[JobId],
    cause: str,
) -> None:
    """Have a job grow by what is free and what others give; it is asked after them."""
    state.promise(job, later, donors)
    after = (*job.ranks, *indices(now), *indices(later))
    resize_transaction.begin(state, job, after, cause)
    givers = ", ".join(map(str, sorted(donors)))
    state.note("job.promised", f"may get {many(count(later), 'processor')} of job {givers}", job)


def bind(state: State, donors: Iterable[JobId]) -> None:
    """After the parts of a plan: who of its donors gives to somebody, and who may begin to."""
    for number in donors:
        donor = state.jobs[number]
        resize = donor.resize
        if resize is None:
            continue
        resize.serves = any(True for _ in _takers(state, donor, resize))
        if resize.serves:
            state.bereft[number] = None  # it may have answered before
        elif resize.wishes:
            accept(state, donor, resize, resize.wishes[0])
            proceed(state, donor, resize)
        elif resize.stage is ResizeStage.AGREED:
            proceed(state, donor, resize)


def use(state: State, donor: Job, kept: ProcessorMap) -> bool:
    """Let a plan use what stands; False: its size is not one that the application named."""
    resize = _release(donor)
    if count(kept) not in (resize.wishes or (len(resize.after),)):
        return False
    resize.after = tuple(p for p in resize.before if kept >> p & 1)
    if resize.wishes:
        resize.wishes = (len(resize.after),)
    resize.standing = resize.short = False
    state.touch(donor)
    return True


# ------------------------------------------------------------------ whether it suffices


def _conclude(state: State, taker: Job, donors: list[Job]) -> bool:
    """Have the donors begin to give if all is given that the job waits for."""
    if any(_short(donor, taker) for donor in donors):
        return False
    for donor in donors:
        resize = _release(donor)
        if resize.wishes:
            _take_wish(state, donor, resize)
        proceed(state, donor, resize)
    return True


def _most(donor: Job, resize: Resize) -> int:
    """How many processors it has agreed, or offers, to give."""
    return donor.size - (min(resize.wishes) if resize.wishes else len(resize.after))


def _short(donor: Job, taker: Job) -> int:
    """How many processors of a job's the donor would rather not give."""
    resize = _release(donor)
    return max(0, count(resize.leaving & taker.earmark) - _most(donor, resize))


def _take_wish(state: State, donor: Job, resize: Resize) -> None:
    """Agree to the total of a counter-offer that suits those who wait best."""
    wanted = _wanted(state, donor, resize, _most(donor, resize))
    accept(state, donor, resize, counter_offers.covering(donor, resize.wishes, count(wanted)))
    resize.stage = ResizeStage.AGREED


def _wanted(state: State, donor: Job, resize: Resize, most: int) -> ProcessorMap:
    """What a donor that gives so many gives to those who wait, first come first served."""
    wanted = NONE
    for job in _takers(state, donor, resize):
        part = job.earmark & resize.leaving
        if count(wanted | part) <= most:
            wanted |= part
    return wanted


def cut(state: State, job: Job, resize: Resize, size: int) -> None:
    """Let a resize lead to another size; promises that can be kept are."""
    if job.earmark:
        _choose(state, job, resize, size)
    else:
        wanted = NONE if resize.grows else _wanted(state, job, resize, job.size - size)
        counter_offers.take(state, job, resize, size, wanted)


def accept(state: State, job: Job, resize: Resize, size: int) -> None:
    """Say yes to a counter-offer, with one of the totals that it names."""
    cut(state, job, resize, size)
    state.emit(SendOffer(job.id, job.run, word(job, resize, Verb.ACCEPT)))
    price = f" for {resize.price:g}" if resize.price else ""
    text = f"its counter-offer of {size}{price} was taken"
    state.note("offer.countered", text, job, resize=resize.id, size=size, price=resize.price)


def proceed(state: State, job: Job, resize: Resize) -> None:
    """Carry out what was agreed on, as soon as the application can give, or take."""
    if resize.not_before > state.now:
        # It is decided, whatever becomes of those who wait.
        resize.serves = False
        amount = many(abs(len(resize.after) - job.size), "processor")
        job.reason = f"{'takes' if resize.grows else 'gives'} {amount} later, as it asked"
        state.timer(TimerKind.RELEASE_TIME, job, resize.not_before - state.now)
        state.touch(job)
    else:
        resize_steps.prepare(state, job, resize)


# ------------------------------------------------------------------ growth that was asked for


def _offer_growth(state: State, taker: Job, growth: Resize) -> None:
    """Offer what there is: what was kept, and what donors would give."""
    there = [growth.newcomers & taker.held, _at_hand(state, taker)]
    there += [part for part, _ in _gifts(state, taker)]
    sizes = taker.request.sizes if taker.request is not None else taker.sizes
    size = sizes.down(taker.size + sum(map(count, there)))
    if size <= taker.size:
        resize_transaction.withdraw(state, taker, "nobody gives the processors")
        return
    _choose(state, taker, growth, size)
    resize_transaction.offer(state, taker, growth)


def _gifts(state: State, taker: Job) -> list[tuple[ProcessorMap, JobId]]:
    """What each donor would give of what is promised to a job, and who it is."""
    gifts = []
    for donor in _donors(state, taker):
        part = _release(donor).leaving & taker.earmark
        gifts.append((lowest(part, count(part) - _short(donor, taker)), donor.id))
    return gifts


def _at_hand(state: State, taker: Job) -> ProcessorMap:
    """What is promised to a job and hangs on no talk any more."""
    hanging = NONE
    for donor in _donors(state, taker):
        hanging |= _release(donor).leaving
    return taker.earmark & ~hanging


def _choose(state: State, taker: Job, growth: Resize, size: int) -> None:
    """Let a growth lead to a size, with what was kept and as few donors as will do."""
    kept = [*indices(growth.newcomers & taker.held), *indices(_at_hand(state, taker))]
    missing = size - taker.size - len(kept)
    given: list[int] = []
    for part in _fewest(_gifts(state, taker), missing):
        given += indices(part)
    growth.after = (*growth.before, *kept, *given)[:size]
    growth.wishes = ()
    mine = of(growth.after)
    resize_transaction.free_processors(state, taker, taker.held & ~taker.allocation & ~mine)
    earmark, donors = taker.earmark & mine, taker.earmark_from
    state.unpromise(taker)
    if earmark:
        still = (number for number in donors if _holds(state, number, earmark))
        state.promise(taker, earmark, frozenset(still))
    state.touch(taker)


def _holds(state: State, number: JobId, processors: ProcessorMap) -> bool:
    job = state.active.get(number)
    return job is not None and bool(job.held & processors)


def _fewest(parts: list[tuple[ProcessorMap, JobId]], missing: int) -> list[ProcessorMap]:
    """Smallest gifts first, as many as are needed; then those that the others make needless go."""
    parts = sorted(parts, key=lambda part: (count(part[0]), part[1]))
    chosen: list[ProcessorMap] = []
    for part, _ in parts:
        if sum(map(count, chosen)) >= missing:
            break
        chosen.append(part)
    for part in list(chosen):
        if sum(map(count, chosen)) - count(part) >= missing:
            chosen.remove(part)
    return chosen


# ------------------------------------------------------------------ what does not hold


def _dissolve(state: State, taker: Job, donors: list[Job]) -> None:
    """The answers do not suffice: the job waits in the queue again, and the strategy revises."""
    for donor in donors:
        resize = _release(donor)
        resize.short = True
        size = min(resize.wishes) if resize.wishes else len(resize.after)
        state.outcomes.append(Outcome(donor.id, size, not resize.wishes))
    names = ", ".join(str(donor.id) for donor in donors if _short(donor, taker))
    resize_transaction.drop_promise(state, taker, f"job {names} gives fewer than were needed")


def _review_donor(state: State, number: JobId) -> None:
    """A job that was asked to give for somebody: whether somebody still waits for it."""
    donor = state.active.get(number)
    resize = donor.resize if donor is not None else None
    if donor is None or resize is None or not resize.serves or resize.grows:
        return
    if any(True for _ in _takers(state, donor, resize)):
        return
    if resize.stage is ResizeStage.AGREED or resize.wishes:
        resize.standing = True
        state.plan_due = True
        state.touch(donor)
    elif state.outcomes and _unanswered(donor):
        pass  # another refused; when this one answers, the strategy may still use it
    elif resize.stage in BEFORE_GO:
        resize_transaction.withdraw(state, donor, "nobody waits for its processors any more")
    elif resize.stage is ResizeStage.GO:
        resize_transaction.ask_back(
            state, donor, resize, "nobody waits for its processors any more"
        )


def let_go(state: State) -> None:
    """After a plan: end what stood and was not used, or insist on what was asked for."""
    for donor in list(state.talking.values()):
        resize = donor.resize
        if resize is None or not resize.standing:
            continue
        resize.standing = False
        if resize.stage is ResizeStage.AGREED:
            resize_transaction.withdraw(state, donor, "its processors are not needed after all")
        elif not resize.short:
            _thank(state, donor, resize)
        elif resize.talk.state is TalkState.LAST_WORD or state.policy.last(own(resize)):
            _decline(state, donor, resize, "less than is needed")
        else:
            resize_transaction.offer(state, donor, resize)


def _thank(state: State, donor: Job, resize: Resize) -> None:
    """Say no to what a donor offered, because nobody needs it: it may be asked again at once."""
    why = "its processors are not needed after all"
    state.emit(SendOffer(donor.id, donor.run, word(donor, resize, Verb.REJECT, why)))
    state.note("offer.declined", why, donor, resize=resize.id)
    resize_transaction.close(state, donor, why)


def _decline(state: State, donor: Job, resize: Resize, why: str) -> None:
    """Say no to what a donor offered instead."""
    state.emit(SendOffer(donor.id, donor.run, word(donor, resize, Verb.REJECT, why)))
    text = f"its counter-offer was declined: {why}"
    state.note("offer.declined", text, donor, resize=resize.id)
    failed(state, donor, resize, text, tell=False)
