"""FPSMA and EGS on paper: the papers' rules, talked through one message after the other."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from corekit.views import running
from pliant.core.model.views_and_plans import RunningJob
from pliant.strategies.policies.koala_malleability import (
    Egs,
    Fpsma,
    MalleabilityPolicy,
    by_start,
    growth_taken,
    shares,
    shrink_given,
)

#: The paper's two applications (6.1, 6.3).
FT, GADGET = "2-32:pow2", "2-46"


def all_usable(_: RunningJob, size: int, smaller: int) -> int:
    return size - smaller


def jobs(*shapes: tuple[int, str]) -> list[RunningJob]:
    """Running jobs by size and grammar, the first one started first."""
    made, first = [], 0
    for number, (size, sizes) in enumerate(shapes, 1):
        made.append(running(number, first, size, sizes))
        first += size
    return made


def grown(policy: MalleabilityPolicy, party: list[RunningJob], amount: int) -> list[int]:
    sizes = policy.grow(party, amount).sizes
    return [sizes[job.id] - job.size for job in party]


def shrunk(policy: MalleabilityPolicy, party: list[RunningJob], amount: int) -> list[int]:
    sizes = policy.shrink(party, amount, all_usable).sizes
    return [job.size - sizes[job.id] for job in party]


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("size", "offered", "taken"), [(4, 3, 0), (4, 7, 4), (8, 100, 24), (32, 5, 0), (2, 0, 0)]
)
def test_ft_takes_up_to_a_power_of_two(size: int, offered: int, taken: int) -> None:
    (job,) = jobs((size, FT))
    assert growth_taken(job, size, offered) == taken


@pytest.mark.parametrize(
    ("size", "asked", "given"), [(8, 3, 4), (8, 4, 4), (8, 7, 6), (2, 5, 0), (32, 1, 16)]
)
def test_ft_gives_down_to_a_power_of_two_and_to_its_minimum(
    size: int, asked: int, given: int
) -> None:
    (job,) = jobs((size, FT))
    assert shrink_given(job, size, asked) == given


# ---------------------------------------------------------------- values of the specification


def test_shares_go_to_the_first_of_the_list() -> None:
    assert shares(7, 3) == [3, 2, 2]
    assert shares(2, 3) == [1, 1, 0]


def test_egs_grows_equally_with_the_bonus_to_the_earliest() -> None:
    assert grown(Egs(), jobs((2, GADGET), (2, GADGET), (2, GADGET)), 7) == [3, 2, 2]
    assert grown(Egs(), jobs((2, GADGET), (2, GADGET), (2, GADGET)), 2) == [1, 1, 0]


def test_egs_shrinks_equally_with_the_malus_to_the_latest() -> None:
    assert shrunk(Egs(), jobs((9, GADGET), (9, GADGET), (9, GADGET)), 7) == [2, 2, 3]


def test_fpsma_the_earliest_grows_and_the_latest_shrinks() -> None:
    party = jobs((2, "2-6"), (2, GADGET), (2, GADGET))
    assert grown(Fpsma(), party, 7) == [4, 3, 0]
    party = jobs((9, GADGET), (9, GADGET), (4, GADGET))
    assert shrunk(Fpsma(), party, 5) == [0, 3, 2]


def test_what_ft_declines_goes_on_in_fpsma_and_waits_in_egs() -> None:
    party = jobs((4, FT), (46, GADGET), (2, GADGET))
    assert grown(Fpsma(), party, 7) == [4, 0, 3]
    alone = jobs((4, FT))
    assert grown(Egs(), alone, 7) == [4]
    assert Egs().grow(alone, 7).left == 3
    pair = jobs((4, FT), (2, GADGET))
    assert grown(Egs(), pair, 6) == [0, 3]
    assert grown(Egs(redistribute=True), pair, 6) == [0, 6]


def test_ft_gives_more_than_fpsma_asks_and_that_ends_the_round() -> None:
    party = jobs((9, GADGET), (8, FT))
    shrinking = Fpsma().shrink(party, 3, all_usable)
    assert (shrinking.missing, shrunk(Fpsma(), party, 3)) == (-1, [0, 4])


def test_egs_asks_again_for_what_is_missing_who_gave_all() -> None:
    # Shares of 4: the latest has but 1 above its minimum, the others give the rest.
    assert shrunk(Egs(), jobs((20, GADGET), (20, GADGET), (3, GADGET)), 12) == [5, 6, 1]


def test_order_of_start_then_of_id_decides() -> None:
    early, late = jobs((2, GADGET), (2, GADGET))
    assert [job.id for job in by_start([late, early])] == [1, 2]
    assert grown(Fpsma(), [late, early], 3) == [0, 3]


def test_nobody_there_nobody_is_asked() -> None:
    for policy in (Fpsma(), Egs(), Egs(redistribute=True)):
        assert policy.grow([], 5).left == 5
        assert policy.shrink([], 5, all_usable).missing == 5


# ---------------------------------------------------------------- the rules, message by message


class Application:
    """A well-behaved job that answers messages by itself."""

    def __init__(self, job: RunningJob) -> None:
        self.allowed, self.size = list(job.sizes.values), job.size

    def grow(self, offered: int) -> int:
        best = max(size for size in self.allowed if size <= self.size + offered)
        taken, self.size = best - self.size, best
        return taken

    def shrink(self, asked: int) -> int:
        small = [size for size in self.allowed if size <= self.size - asked]
        best = max(small) if small else min(self.allowed)
        given, self.size = self.size - best, best
        return given


def fpsma_grow(party: list[Application], amount: int) -> None:
    """Figure 4 as the text describes it."""
    for job in party:
        amount -= job.grow(amount)
        if amount <= 0:
            break


def fpsma_shrink(party: list[Application], amount: int) -> None:
    """Figure 4, with <= for ==."""
    for job in reversed(party):
        amount -= job.shrink(amount)
        if amount <= 0:
            break


def egs_grow(party: list[Application], amount: int) -> None:
    """Figure 5 as the text describes it."""
    for place, job in enumerate(party):
        job.grow(amount // len(party) + (1 if place < amount % len(party) else 0))


def egs_shrink(party: list[Application], amount: int) -> None:
    """Figure 5 with its slips put right; one poll."""
    for place, job in enumerate(reversed(party)):
        job.shrink(amount // len(party) + (1 if place < amount % len(party) else 0))


@st.composite
def parties(draw: st.DrawFn) -> list[RunningJob]:
    shapes = []
    for _ in range(draw(st.integers(1, 6))):
        allowed = sorted(draw(st.sets(st.integers(1, 40), min_size=1, max_size=8)))
        text = "{" + ",".join(map(str, allowed)) + "}"
        sizes = draw(st.sampled_from([text, f"{allowed[0]}-{allowed[-1]}"]))
        shapes.append((draw(st.sampled_from(allowed)), sizes))
    return jobs(*shapes)


@given(parties(), st.integers(0, 60))
def test_talks_at_the_same_time_come_to_what_talks_in_turn_come_to(
    party: list[RunningJob], amount: int
) -> None:
    for policy, rule in ((Fpsma(), fpsma_grow), (Egs(), egs_grow)):
        talked = [Application(job) for job in party]
        rule(talked, amount)
        sizes = policy.grow(party, amount).sizes
        assert [sizes[job.id] for job in party] == [each.size for each in talked]
    talked = [Application(job) for job in party]
    if amount:
        fpsma_shrink(talked, amount)
    sizes = Fpsma().shrink(party, amount, all_usable).sizes
    assert [sizes[job.id] for job in party] == [each.size for each in talked]


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(parties(), st.integers(0, 60))
def test_an_egs_shrink_that_one_poll_satisfies_is_that_poll(
    party: list[RunningJob], luck: int
) -> None:
    amount = 1 + luck % max(1, sum(job.size - job.sizes.min for job in party) // 2)
    talked = [Application(job) for job in party]
    egs_shrink(talked, amount)
    assume(sum(job.size for job in party) - sum(each.size for each in talked) >= amount)
    sizes = Egs().shrink(party, amount, all_usable).sizes
    assert [sizes[job.id] for job in party] == [each.size for each in talked]


@given(parties(), st.integers(0, 120), st.booleans())
def test_rounds_stay_within_what_there_is(
    party: list[RunningJob], amount: int, redistribute: bool
) -> None:
    for policy in (Fpsma(), Egs(redistribute=redistribute)):
        growth = policy.grow(party, amount)
        total = sum(growth.sizes[job.id] - job.size for job in party)
        assert growth.left == amount - total >= 0
        shrinking = policy.shrink(party, amount, all_usable)
        most = sum(job.size - job.sizes.min for job in party)
        assert (shrinking.missing <= 0) == (most >= amount)
        for job in party:
            assert job.size <= growth.sizes[job.id] in job.sizes
            assert job.size >= shrinking.sizes[job.id] in job.sizes


@given(parties(), st.integers(0, 60))
def test_egs_with_redistribution_leaves_only_what_nobody_takes(
    party: list[RunningJob], amount: int
) -> None:
    growth = Egs(redistribute=True).grow(party, amount)
    assert growth.left == 0 or growth.declined == {job.id for job in party}
