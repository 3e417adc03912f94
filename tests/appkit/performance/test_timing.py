"""Measured timer, estimated costs, and what the library says to offers because of them."""

from __future__ import annotations

import sys

import pytest

from pliant.appkit.coordinator.messages import Measured, Offer, RequestRecord, RequestState
from pliant.appkit.data.registered_data import Registry
from pliant.appkit.loops import Loops
from pliant.appkit.performance import timing as module
from pliant.appkit.performance.cost_model import (
    ResizeCostModel,
    ResizeRecord,
    cost_benefit_objection,
)
from pliant.appkit.performance.monitor import PerformanceMonitor
from pliant.appkit.performance.timing import IterationTimer, ResizeTiming, Site, site_of
from pliant.appkit.redistribution.transfer_plan import (
    RankMap,
    plan_blocks,
)
from pliant.core.values.sizes import Sizes

HERE: Site = ("program.py", 1, 10)
THERE: Site = ("program.py", 1, 20)


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


class Loop:
    """A loop that is driven by hand."""

    def __init__(self, clock: Clock, size: int = 2) -> None:
        self.clock, self.size = clock, size
        self.timer, self.iteration = IterationTimer(), 0
        self.timer.start_loop(HERE)

    def run(self, stretches: int, seconds: float, iterations: int = 10) -> None:
        for _ in range(stretches):
            self.clock.now += seconds
            self.iteration += iterations
            self.safe_point()

    def safe_point(self, pause: float = 0.0, *, resized: int = 0) -> None:
        self.timer.end_interval(self.iteration, self.size)
        self.clock.now += pause
        if resized:
            self.timer.discard_interval()
            self.size = resized
        self.timer.begin_interval(self.iteration)


def test_the_median_counts_and_the_first_stretch_does_not(clock: Clock) -> None:
    loop = Loop(clock)
    loop.run(1, 99.0)
    assert loop.timer.measured() == ()
    loop.run(2, 2.0)
    assert loop.timer.measured() == (), "two are too few"
    loop.run(2, 3.0)
    loop.run(1, 50.0)
    assert loop.timer.measured() == (Measured(2, 0.3, 50),)


def test_resizes_and_waiting_are_left_out(clock: Clock) -> None:
    loop = Loop(clock)
    loop.run(1, 1.0)
    for _ in range(4):
        loop.run(1, 2.0)
        loop.safe_point(pause=70.0)  # nothing was done since the last one
    loop.safe_point(pause=70.0, resized=4)
    loop.run(1, 30.0)
    loop.run(4, 1.0)
    assert loop.timer.measured() == (Measured(2, 0.2, 40), Measured(4, 0.1, 40))


def test_old_stretches_are_forgotten(clock: Clock) -> None:
    loop = Loop(clock)
    loop.run(1 + module.KEPT, 5.0)
    loop.run(module.KEPT, 1.0)
    assert loop.timer.measured() == (Measured(2, 0.1, 2 * 10 * module.KEPT),)


def test_each_loop_has_its_own(clock: Clock) -> None:
    loop = Loop(clock)
    loop.run(5, 1.0)
    loop.timer.start_loop(THERE)
    assert loop.timer.measured() == ()
    loop.run(5, 4.0)
    assert loop.timer.measured() == (Measured(2, 0.4, 40),)
    loop.timer.start_loop(HERE)
    assert loop.timer.measured() == (Measured(2, 0.1, 40),)


def test_a_place_is_told_by_file_and_line() -> None:
    frame = sys._getframe()
    site = site_of(frame)
    assert site[:2] == (__file__, frame.f_code.co_firstlineno)
    assert site != site_of(frame), "another place of the same function"


# -------------------------------------------------------------------- costs


class Array:
    """An entry of the registry, as far as it is asked."""

    name = "array"

    def estimate(self, rank_map: RankMap) -> int:
        return plan_blocks(100, rank_map, 8).bytes_moved


def registry() -> Registry:
    entries = Registry()
    entries.add(Array())  # type: ignore[arg-type]  # as much as is needed
    return entries


def test_a_cost_is_what_moves_at_the_measured_bandwidth_and_the_rest_of_the_pause() -> None:
    costs = ResizeCostModel()
    assert costs.estimate(registry(), 1, 2) == 0.0, "nothing is known"
    costs.add(ResizeRecord(grows=True, bytes_moved=800, move_s=2.0, pause_s=2.5))
    assert costs.estimate(registry(), 1, 2) == pytest.approx(0.5 + 400 * 2.0 / 800)
    assert costs.estimate(registry(), 2, 1) == pytest.approx(0.5 + 400 * 2.0 / 800)
    costs.add(ResizeRecord(grows=False, bytes_moved=800, move_s=2.0, pause_s=2.1))
    assert costs.estimate(registry(), 2, 1) == pytest.approx(0.1 + 400 * 4.0 / 1600)
    assert costs.estimate(registry(), 1, 2) == pytest.approx(0.5 + 400 * 4.0 / 1600)


def test_a_job_without_data_has_a_pause_only() -> None:
    costs = ResizeCostModel()
    costs.add(ResizeRecord(grows=True, bytes_moved=0, move_s=0.0, pause_s=0.2))
    assert costs.estimate(Registry(), 1, 2) == pytest.approx(0.2)


# -------------------------------------------------------------------- the default answer


def offer(current: int, proposed: int, cost: float = 0.0, **terms: bool) -> Offer:
    return Offer(1, current, proposed, estimated_cost_s=cost, **terms)  # type: ignore[arg-type]


FAST = (Measured(2, 0.4, 100), Measured(4, 0.2, 100))
FLAT = (Measured(2, 0.4, 100), Measured(4, 0.39, 100))


def test_a_growth_has_to_be_worth_its_cost() -> None:
    assert cost_benefit_objection(offer(2, 4, cost=19.9), 100, FAST) == ""
    assert cost_benefit_objection(offer(2, 4, cost=20.1), 100, FAST) == (
        "the 100 iterations that are left would take 20 s on 4 processors instead of 40 s, "
        "moving costs 20.1 s"
    )
    assert cost_benefit_objection(offer(2, 4, cost=0.9), 100, FLAT) == ""
    assert "moving costs 1.1 s" in cost_benefit_objection(offer(2, 4, cost=1.1), 100, FLAT)


def test_an_operator_and_who_always_grows_are_not_asked_for_gain() -> None:
    assert cost_benefit_objection(offer(2, 4, cost=1.1), 100, FLAT)
    assert cost_benefit_objection(offer(2, 4, cost=1.1, skip_gain_test=True), 100, FLAT) == ""


def test_what_was_never_tried_is_taken_to_be_linear() -> None:
    once = (Measured(2, 0.4, 100),)
    assert cost_benefit_objection(offer(2, 4, cost=19.0), 100, once) == ""
    assert "instead of 40 s" in cost_benefit_objection(offer(2, 4, cost=21.0), 100, once)
    assert cost_benefit_objection(offer(2, 3, cost=13.0), 100, once) == ""


@pytest.mark.parametrize(
    ("made", "remaining", "measured"),
    [
        (offer(4, 2, 1e9), 1, FLAT),
        (offer(2, 4, 1e9, mandatory=True), 1, FLAT),
        (offer(2, 4, 1e9), 0, FLAT),
        (offer(2, 4, 1e9), 1, ()),
        (offer(3, 4, 1e9), 1, FLAT),
    ],
    ids=["a shrink", "mandatory", "unknown end", "unknown speed", "unknown here"],
)
def test_what_cannot_be_judged_is_not_refused(
    made: Offer, remaining: int, measured: tuple[Measured, ...]
) -> None:
    assert cost_benefit_objection(made, remaining, measured) == ""


def test_what_was_asked_for_is_not_refused(clock: Clock) -> None:
    loop = Loop(clock)
    loops = Loops()
    loops.begin(100)
    monitor = PerformanceMonitor(registry(), loops)
    monitor.timer = loop.timer
    loop.run(5, 1.0)
    loop.safe_point(resized=4)
    loop.run(5, 1.0)
    growth = offer(2, 4)
    assert "would take" in monitor.objection(growth, None)
    asked = RequestRecord(1, Sizes((4,)), "", 0.0)
    assert monitor.objection(growth, asked) == ""
    over = RequestRecord(1, Sizes((4,)), "", 0.0, RequestState.EXPIRED)
    other = RequestRecord(1, Sizes((8,)), "", 0.0)
    assert monitor.objection(growth, over)
    assert monitor.objection(growth, other)


def test_what_is_known_goes_with_the_role(clock: Clock) -> None:
    loop = Loop(clock)
    loop.run(5, 1.0)
    first, second = PerformanceMonitor(registry(), Loops()), PerformanceMonitor(registry(), Loops())
    first.timer = loop.timer
    report = ResizeTiming()
    report.seconds, report.bytes_moved = {"move": 2.0, "total": 2.5}, 800
    first.record_resize(True, report)
    second.timer.start_loop(HERE)
    second.adopt(first.history())
    assert second.progress().measured == (Measured(2, 0.1, 40),)
    assert second.with_cost(offer(1, 2)).estimated_cost_s == pytest.approx(1.5)
