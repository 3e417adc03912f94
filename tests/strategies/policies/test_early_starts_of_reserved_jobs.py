"""Jobs that start on others' promised processors, and what these get in exchange."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from corekit.views import make_view, running
from pliant.core.model.views_and_plans import PromisedJob, RunningJob, View
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, count, from_indices
from pliant.core.values.sizes import Sizes
from pliant.strategies import load_strategy
from pliant.strategies.policies.early_starts_of_reserved_jobs import (
    Agreement,
    released,
    start_promised,
)
from pliant.strategies.policies.placement import Placer


def promise(number: int, *processors: int, donors: tuple[int, ...] = ()) -> PromisedJob:
    return PromisedJob(
        JobId(number),
        float(number),
        from_indices(processors),
        Sizes((len(processors),)),
        frozenset(map(JobId, donors)),
    )


def donor(number: int, first: int, size: int, promised: int) -> RunningJob:
    """Return a job that has been asked; the view shows what is promised as nobody's."""
    job = replace(running(number, first, size), malleable=True)
    return replace(job, held=job.held & ~promised)


def honoured(view: View, agreement: Agreement) -> dict[int, int]:
    placer = Placer(view)
    start_promised(view, placer, agreement)
    starts: dict[int, int] = {start.job: start.processors for start in placer.starts}
    assert placer.free == view.free & ~sum(starts.values())
    return starts


def two(*free: int) -> View:
    """Job 8 is promised 0-2 and job 9 3-5; donor 1 still holds 1 and 2, donor 2 still holds 5."""
    promised = (promise(8, 0, 1, 2, donors=(1, 3)), promise(9, 3, 4, 5, donors=(2, 4)))
    both = from_indices(range(6))
    active = (
        donor(1, 1, 2, both),
        donor(2, 5, 1, both),
        running(5, 6, 4 - len(free)),
    )
    return make_view(10, (), active, promised)


def test_what_has_been_released() -> None:
    assert released(two()) == from_indices([0, 3, 4])


def test_steal_takes_from_later_agreements_and_gives_in_exchange() -> None:
    assert honoured(two(), "steal") == {8: from_indices([0, 3, 4]), 9: from_indices([1, 2, 5])}


def test_free_processors_come_before_those_of_others() -> None:
    # Job 8 takes one that is free and needs one of job 9's.
    assert honoured(two(9), "steal") == {8: from_indices([0, 3, 9]), 9: from_indices([1, 4, 5])}


def test_pool_lets_whoever_can_start_take_from_all() -> None:
    # Job 7 came first and needs four: it has one. Job 9 has two and takes that one.
    promised = (promise(7, 0, 1, 2, 6, donors=(1,)), promise(9, 3, 4, 5, donors=(2,)))
    both = from_indices(range(7))
    active = (donor(1, 1, 2, both), donor(2, 5, 1, both), donor(3, 6, 1, both))
    view = make_view(7, (), active, promised)
    assert released(view) == from_indices([0, 3, 4])
    assert honoured(view, "steal") == {}
    assert honoured(view, "pool") == {9: from_indices([0, 3, 4]), 7: from_indices([1, 2, 5, 6])}


def test_what_may_still_be_held_by_a_leaver_is_not_taken() -> None:
    promised = (promise(8, 0, 1, donors=(1,)), promise(9, 2, 3))
    # Donor 1's allocation is without 0 and 1 already, but it is not done.
    view = make_view(8, (), (donor(1, 4, 2, NONE),), promised)
    assert released(view) == from_indices([2, 3])
    settled = (replace(view.running[0], sizes=Sizes(range(1, 9)), resizable=True),)
    assert released(replace(view, running=settled)) == from_indices([0, 1, 2, 3])


def test_direct_leaves_it_to_the_core() -> None:
    for family in ("easy-min", "easy-avg", "easy-pref"):
        assert load_strategy(family).allocate_processors(two()).starts == ()
        stealing = load_strategy(family, {"agreement": "steal"})
        starts = stealing.allocate_processors(two()).starts
        assert [start.job for start in starts] == [8, 9]


@given(st.data())
def test_nobody_is_promised_less_and_nothing_twice(data: st.DataObject) -> None:
    total = 16
    order = data.draw(st.permutations(range(total)))
    promised, place = [], 0
    for number in range(10, 10 + data.draw(st.integers(1, 4))):
        size = data.draw(st.integers(1, 4))
        promised.append(promise(number, *order[place : place + size]))
        place += size
    held = data.draw(st.sets(st.sampled_from(order[:place])))
    busy = from_indices(held)
    holder = replace(running(1, 0, 0), ranks=tuple(sorted(held)), held=NONE)
    taken = data.draw(st.integers(place, total))
    other = replace(running(2, 0, 0), ranks=tuple(order[taken:]), held=from_indices(order[taken:]))
    view = make_view(total, (), (holder, other), tuple(promised))
    for agreement in ("pool", "steal"):
        starts = honoured(view, agreement)
        final = {job.id: starts.get(job.id, job.processors) for job in promised}
        assert sum(map(count, final.values())) == count(sum(final.values()))
        for job in promised:
            assert count(final[job.id]) == count(job.processors)
            if not final[job.id] & busy:
                continue
            # Whoever cannot start has nothing that is free and was not promised before.
            assert not final[job.id] & view.free
