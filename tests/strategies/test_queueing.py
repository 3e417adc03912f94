"""What the composed strategies say: reasons, availability, memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corekit.views import make_view, running, told, waiting
from pliant.core.model.views_and_plans import Availability, View
from pliant.core.values.processors import count
from pliant.strategies import load_strategy
from pliant.strategies.policies.placement import Placer
from pliant.strategies.queueing import Composed, Resizing

NAMES = [
    order + backfill
    for order in ("fcfs", "sjf", "ljf", "dynp")
    for backfill in ("", "+easy", "+conservative")
]

ACTIVE = (running(1, 0, 4, end=2000.0), running(2, 4, 2, end=3000.0))


def ask(name: str, view: View, sizes: str = "2", estimate: float | None = 100.0) -> Availability:
    return load_strategy(name).is_available(waiting(999, sizes, estimate), view)


# ---------------------------------------------------------------- reasons


@pytest.mark.parametrize("name", NAMES)
def test_everybody_is_told_why(name: str) -> None:
    queue = tuple(waiting(n, "7", 10.0) for n in (7, 8, 9))
    view = make_view(8, queue, ACTIVE)
    plan = load_strategy(name).allocate_processors(view)
    present = " (under the present policy, fcfs)" if name.startswith("dynp") else ""
    assert told(plan, view) == {
        7: "waits for at least 7 processors (available to it now: 2)" + present,
        8: "waits for jobs before it" + present,
        9: "waits for jobs before it" + present,
    }


def test_the_first_in_the_order_of_the_policy_is_told_what_it_lacks() -> None:
    queue = (waiting(7, "7", 10.0), waiting(8, "7", 5.0))
    reasons = load_strategy("sjf").allocate_processors(make_view(8, queue, ACTIVE)).reasons
    assert list(reasons) == [queue[1].id]


# ---------------------------------------------------------------- is_available


@pytest.mark.parametrize("name", NAMES)
def test_now_if_it_is_free(name: str) -> None:
    found = ask(name, make_view(8, (), ACTIVE))
    assert (found.accepted, found.start, found.processors) == (True, 1000.0, 2)
    assert found.reason.startswith("processors are available")
    assert ("present policy" in found.reason) == name.startswith("dynp")


@pytest.mark.parametrize("name", NAMES)
def test_never_if_it_is_larger_than_the_machine(name: str) -> None:
    found = ask(name, make_view(8, (), ACTIVE), "9-12")
    assert found == Availability(False, None, 0, "needs 9 processors, the cluster has 8")


@pytest.mark.parametrize("name", NAMES)
def test_later_by_the_estimates(name: str) -> None:
    found = ask(name, make_view(8, (), ACTIVE), "5-8")
    assert (found.accepted, found.start, found.processors) == (True, 2000.0, 5)
    assert found.reason.startswith("by the jobs' estimates")


@pytest.mark.parametrize("name", NAMES)
def test_unknown_behind_jobs_without_estimates(name: str) -> None:
    found = ask(name, make_view(8, (), (running(1, 0, 8),)), "5-8")
    assert (found.accepted, found.start, found.processors) == (True, None, 5)
    assert found.reason.startswith("the jobs before it state no estimates")


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("fcfs", 2000.0),  # nobody passes
        ("fcfs+easy", 1000.0),
        ("fcfs+conservative", 1000.0),
        ("sjf", 1000.0),  # it is the shortest
        ("ljf", 2000.0),
        ("ljf+conservative", 1000.0),
    ],
)
def test_at_its_place_in_the_queue(name: str, start: float) -> None:
    queue = (waiting(7, "5", 500.0),)
    assert ask(name, make_view(8, queue, ACTIVE), "1", 100.0).start == start


def test_a_job_that_waits_already_is_not_counted_twice() -> None:
    queue = (waiting(7, "5", 500.0), waiting(8, "6", 100.0), waiting(9, "2", 400.0))
    view = make_view(8, queue, ACTIVE)
    strategy = load_strategy("fcfs")
    assert [strategy.is_available(job, view).start for job in queue] == [2000.0, 2500.0, 2600.0]
    strategy = load_strategy("fcfs+conservative")
    assert [strategy.is_available(job, view).start for job in queue] == [2000.0, 2500.0, 1000.0]


@pytest.mark.parametrize("name", [name for name in NAMES if "conservative" in name])
def test_what_is_promised_for_now_happens_now(name: str) -> None:
    queue = tuple(waiting(n, str(1 + n % 4), 100.0 * (n % 5)) for n in range(5, 25))
    view = make_view(8, queue, ACTIVE)
    strategy = load_strategy(name)
    starts = {start.job for start in strategy.allocate_processors(view).starts}
    assert starts == {job.id for job in queue if strategy.is_available(job, view).start == 1000.0}
    assert starts


# ---------------------------------------------------------------- the third choice


class FillUp(Resizing):
    """Gives all that is left to the first job."""

    def after(self, view: View, placer: Placer) -> None:
        placer.grow(view.running[0], view.running[0].sizes.max)


def test_a_resize_policy_gets_what_the_queue_left() -> None:
    view = make_view(12, (waiting(9, "2-3", 10.0),), (running(1, 0, 4, "1-12"),))
    plan = Composed("fcfs", "easy", FillUp()).allocate_processors(view)
    assert [count(start.processors) for start in plan.starts] == [3]
    assert [count(offer.processors) for offer in plan.expands] == [9]


# ---------------------------------------------------------------- determinism


@pytest.mark.parametrize("name", NAMES)
def test_a_strategy_keeps_nothing_to_itself(name: str) -> None:
    first = make_view(8, tuple(waiting(n, "1", 9999.0) for n in range(3, 9)), ACTIVE)
    second = make_view(8, tuple(waiting(n, "2", 5.0) for n in range(13, 19)), now=1500.0)
    used = load_strategy(name)
    used.allocate_processors(first)
    assert used.allocate_processors(second) == load_strategy(name).allocate_processors(second)
    mixed = replace(second, memory=[1, {"a": None}])
    assert used.allocate_processors(mixed) == load_strategy(name).allocate_processors(second)
