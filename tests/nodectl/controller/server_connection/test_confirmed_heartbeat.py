"""What a node knows of its lease, and what its shims do when it is over."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.nodectl import lease_expiry
from pliant.nodectl.controller.server_connection.confirmed_heartbeat import (
    ConfirmedHeartbeat,
    expired_order,
)
from pliant.nodectl.shim import lease_enforcement as shim_lease
from pliant.nodectl.shim.event_loop import ScheduledCall
from pliant.nodectl.shim.lease_enforcement import Lease
from pliant.nodectl.world_folder import StartRequest
from pliant.protos import node_pb2 as wire


class FakeLoop:
    """Timers, and a clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, int, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now

    def after(self, seconds: float, call: Callable[[], None]) -> ScheduledCall:
        heapq.heappush(self.timers, (self.now + seconds, len(self.timers), call))
        return ScheduledCall(self.now + seconds, call)

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while self.timers and self.timers[0][0] <= until:
            self.now, _, call = heapq.heappop(self.timers)
            call()
        self.now = until


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> FakeLoop:
    loop = FakeLoop()
    monkeypatch.setattr(lease_expiry, "time", loop)
    monkeypatch.setattr(shim_lease, "time", loop)
    return loop


def request(stop_after_s: float | None, at: float) -> StartRequest:
    return StartRequest(
        *("w", 1, 1, 0, "mpi", 1, [(0, 0)], ["true"], {}, "/", ""),
        stop_after_s=stop_after_s,
        lease_s=60.0,
        contact=at,
    )


def lease_of(loop: FakeLoop, stop_after_s: float | None, at: float) -> tuple[Lease, list[str]]:
    said: list[str] = []
    lease = Lease(loop, request(stop_after_s, at), said.append)  # type: ignore[arg-type]
    lease.watch()
    return lease, said


# ------------------------------------------------------------------ what the server has heard


def test_contact_dates_from_when_the_heartbeat_was_sent() -> None:
    mine = ConfirmedHeartbeat()
    mine.begin(10.0)
    assert mine.confirmed_at is None
    assert mine.confirm(0)
    mine.sent(1, 12.0)
    mine.sent(2, 14.0)
    mine.sent(3, 16.0)
    assert mine.confirm(2)
    assert mine.confirmed_at == 14.0
    assert not mine.confirm(2)
    assert not mine.confirm(1)
    assert mine.confirmed_at == 14.0


def test_a_new_stream_does_not_confirm_what_was_sent_on_the_last_one() -> None:
    mine = ConfirmedHeartbeat()
    mine.begin(10.0)
    mine.confirm(0)
    mine.sent(1, 12.0)
    mine.begin(20.0)
    assert not mine.confirm(-1)
    assert mine.confirmed_at == 10.0
    mine.sent(1, 22.0)
    assert mine.confirm(1)
    assert mine.confirmed_at == 22.0


def test_a_number_that_was_never_sent_confirms_nothing() -> None:
    mine = ConfirmedHeartbeat()
    mine.begin(10.0)
    assert not mine.confirm(7)
    assert mine.confirmed_at is None


@given(
    steps=st.lists(
        st.tuples(st.booleans(), st.floats(0.0, 10.0), st.integers(0, 5)), min_size=1, max_size=60
    )
)
def test_contact_is_never_later_than_the_last_heartbeat_that_arrived(
    steps: list[tuple[bool, float, int]],
) -> None:
    """Signs of life and answers are under way for any time, and may be lost."""
    mine, now, number = ConfirmedHeartbeat(), 0.0, 0
    mine.begin(now)
    under_way, arrived, heard_at = [0], [0], -1.0
    for beats, passes, delay in steps:
        now += passes
        if beats:
            number += 1
            mine.sent(number, now)
            under_way.append(number)
        elif delay < len(under_way):
            sign = under_way.pop(delay)  # whatever was sent, in any order
            heard_at = now
            arrived.append(sign)
            mine.confirm(arrived[delay % len(arrived)])
        if mine.confirmed_at is not None:
            assert mine.confirmed_at <= max(heard_at, 0.0)


# ------------------------------------------------------------------ orders that come late


def test_an_order_is_carried_out_while_the_lease_lasts(loop: FakeLoop) -> None:
    order = wire.StartWorld(stop_after_s=30.0, lease_s=60.0)
    assert expired_order(order, loop.now - 89.0) == ""
    late = expired_order(order, loop.now - 90.0)
    assert late == "cut off from the server for 90 s (stop-after=30)"
    assert "has not confirmed any contact" in expired_order(order, None)
    assert expired_order(wire.StartWorld(lease_s=60.0), None) == ""


# ------------------------------------------------------------------ the shim


def test_a_lease_is_over_when_it_was_not_renewed(loop: FakeLoop) -> None:
    lease, said = lease_of(loop, 30.0, loop.now)
    loop.wait(50.0)
    lease.renew(loop.now - 1.0)
    loop.wait(88.9)
    assert said == []
    assert lease.expired() == ""
    loop.wait(0.2)
    assert said == ["cut off from the server for 90 s (stop-after=30)"]
    loop.wait(1000.0)
    assert len(said) == 1


def test_a_contact_of_long_ago_renews_nothing(loop: FakeLoop) -> None:
    lease, said = lease_of(loop, 0.0, loop.now)
    loop.wait(59.0)
    lease.renew(loop.now - 59.5)
    loop.wait(1.0)
    assert len(said) == 1


def test_a_lease_that_was_over_before_the_start_is_noticed_at_once(loop: FakeLoop) -> None:
    lease, said = lease_of(loop, 5.0, loop.now - 65.0)
    assert lease.expired()
    assert len(said) == 1


def test_who_keeps_its_processes_never_ends_them(loop: FakeLoop) -> None:
    lease, said = lease_of(loop, None, 0.0)
    loop.wait(1e9)
    assert (said, lease.expired(), loop.timers) == ([], "", [])
