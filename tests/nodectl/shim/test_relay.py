"""Messages between shims arrive once and in order, although packets get lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.nodectl.shim.event_loop import ScheduledCall
from pliant.nodectl.shim.steps.shim_messenger import WINDOW, ShimMessenger


class Clock:
    """Runs the timers of a relay when a test wants that."""

    def __init__(self) -> None:
        self.calls: list[ScheduledCall] = []

    def after(self, seconds: float, call: Any) -> ScheduledCall:
        self.calls.append(ScheduledCall(seconds, call))
        return self.calls[-1]

    def tick(self) -> None:
        calls, self.calls = self.calls, []
        for each in calls:
            if each.call is not None:
                each.call()


class Pair:
    """Two relays, and the packets between them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.packets: list[tuple[int, dict[str, Any]]] = []
        self.arrived: list[dict[str, Any]] = []
        self.is_full = False
        self.relays = {
            number: ShimMessenger(
                self.clock,  # type: ignore[arg-type]
                lambda rank, packet: self.packets.append((rank, packet)),
                self.take,
                lambda: None,
            )
            for number in (0, 4)
        }

    def take(self, _: int, message: dict[str, Any]) -> bool:
        if not self.is_full:
            self.arrived.append(message)
        return not self.is_full

    def deliver(self, lost: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        packets, self.packets = self.packets, []
        for place, (rank, packet) in enumerate(packets):
            if place not in lost:
                self.relays[rank].receive(4 - rank, packet)


@given(st.lists(st.sets(st.integers(0, 40)), max_size=8), st.integers(1, 3 * WINDOW))
def test_messages_arrive_once_and_in_order(losses: list[set[int]], count: int) -> None:
    pair = Pair()
    messages = [{"number": number} for number in range(count)]
    for message in messages:
        pair.relays[0].send(4, message)
    for lost in losses:
        pair.deliver(lost)
        pair.clock.tick()
    for _ in range(2 * count):
        pair.deliver()
        pair.clock.tick()
    assert pair.arrived == messages
    assert pair.clock.calls == []


@pytest.mark.parametrize("count", [1, WINDOW + 5])
def test_a_receiver_that_is_full_gets_the_messages_later(count: int) -> None:
    pair = Pair()
    pair.is_full = True
    for number in range(count):
        pair.relays[0].send(4, {"number": number})
    assert pair.relays[0].has_room(4) == (count < WINDOW)
    pair.deliver()
    pair.deliver()
    assert pair.arrived == []
    pair.is_full = False
    for _ in range(10):
        pair.clock.tick()
        pair.deliver()
    assert [message["number"] for message in pair.arrived] == list(range(count))
    assert pair.relays[0].has_room(4)
