"""Case 35: the server's time goes on steadily whatever the machine's clocks do."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.server.support import clock as module
from pliant.server.support.clock import CLOCK_KEY, HybridClock, resume_clock

NOON = 1_700_000_000.0


class Machine:
    """A machine whose wall clock can be set, and that can be booted."""

    def __init__(self) -> None:
        self.wall, self.since_boot, self.boots = NOON, 100.0, 1

    @property
    def boot(self) -> str:
        return f"boot-{self.boots}"

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.since_boot += seconds

    def reboots(self) -> None:
        self.boots, self.since_boot = self.boots + 1, 5.0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return put_into(Machine(), monkeypatch)


def put_into(machine: Machine, patch: pytest.MonkeyPatch) -> Machine:
    clocks = SimpleNamespace(time=lambda: machine.wall, monotonic=lambda: machine.since_boot)
    patch.setattr(module, "time", clocks)
    return machine


def again(clock: HybridClock, machine: Machine, last: float | None) -> HybridClock:
    """Start another server after one with this clock."""
    return resume_clock({CLOCK_KEY: clock.record(machine.boot)}, machine.boot, last)


JUMPS = [3600.0, -3600.0, -NOON]


@pytest.mark.parametrize("jump", JUMPS)
def test_a_clock_that_is_set_moves_nothing(machine: Machine, jump: float) -> None:
    clock = HybridClock()
    machine.passes(10)
    machine.wall += jump
    machine.passes(10)
    assert clock.now() == NOON + 20
    assert clock.ahead_s() == jump


@pytest.mark.case(35)
@pytest.mark.parametrize("jump", JUMPS)
def test_the_next_server_goes_on_while_jobs_are_open(
    machine: Machine, jump: float, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HybridClock()
    machine.wall += jump
    machine.passes(10)
    assert again(clock, machine, last=NOON).now() == NOON + 10
    assert f"the machine's clock is {abs(jump):.0f} s" in caplog.text


@pytest.mark.parametrize("jump", JUMPS)
def test_with_no_job_open_the_machine_is_followed(machine: Machine, jump: float) -> None:
    clock = HybridClock()
    machine.wall += jump
    assert again(clock, machine, last=None).now() == NOON + jump


def test_after_a_boot_only_the_wall_clock_knows_how_long_it_took(machine: Machine) -> None:
    clock = HybridClock()
    meta = {CLOCK_KEY: clock.record(machine.boot)}
    machine.reboots()
    machine.wall += 300
    assert resume_clock(meta, machine.boot, last=NOON).now() == NOON + 300
    machine.wall = 0.0
    assert resume_clock(meta, machine.boot, last=NOON + 7).now() == NOON + 7


def test_a_database_without_a_clock(machine: Machine) -> None:
    assert resume_clock({}, machine.boot, last=NOON - 60).now() == NOON


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("passes"), st.floats(0, 1e6)),
        st.tuples(st.just("set"), st.floats(0, 4e9)),
        st.tuples(st.just("restart"), st.just(0.0)),
        st.tuples(st.just("boot"), st.just(0.0)),
    )
)


@pytest.mark.case(35)
@given(STEPS)
def test_time_never_runs_backwards_while_jobs_are_open(
    steps: list[tuple[str, float]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        machine = put_into(Machine(), patch)
        clock, last = HybridClock(), NOON
        for what, value in steps:
            if what == "passes":
                machine.passes(value)
            elif what == "set":
                machine.wall = value
            elif what == "restart":
                before = clock.now()
                clock = again(clock, machine, last)
                assert clock.now() == before
            else:
                meta = {CLOCK_KEY: clock.record(machine.boot)}
                machine.reboots()
                clock = resume_clock(meta, machine.boot, last)
            # Sums of floats of this size are exact to a microsecond.
            assert clock.now() >= last - 1e-5
            last = clock.now()
