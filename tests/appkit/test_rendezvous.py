"""The rendezvous among strangers: who may come in, how long it waits, how it ends."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from pliant.appkit import door
from pliant.appkit.guests import GREETING_BYTES
from pliant.appkit.join_protocol import NUMBERS
from pliant.appkit.rendezvous import ENDED, Rendezvous
from testkit import wait_until

SECRET = "secret"


class Desk:
    """What a coordinator would be told."""

    def __init__(self) -> None:
        self.gathered = 0
        self.lost: list[tuple[int, str]] = []
        self.fault: Exception | None = None
        self.place = Rendezvous("127.0.0.1", self._gathered, self._lost, lambda: 4, self._once)
        self.place.enter(1)

    def _gathered(self) -> None:
        self.gathered += 1

    def _lost(self, resize: int, reason: str) -> None:
        self.lost.append((resize, reason))

    def _once(self) -> list[bytes]:
        if self.fault is not None:
            raise self.fault
        return [b"result"]

    def heard_of(self, resize: int) -> Callable[[], bool]:
        return lambda: any(number == resize for number, _ in self.lost)

    def connect(self) -> socket.socket:
        host, _, port = self.place.address.rpartition(":")
        return socket.create_connection((host, int(port)), 30)

    def newcomer(self, rank: int, secret: str = SECRET, resize: int = 1) -> socket.socket:
        sock = self.connect()
        say(sock, **NUMBERS, resize=resize, rank=rank, secret=secret)
        return sock

    def arrive(self, rank: int, loop: int = 1) -> socket.socket:
        sock = self.newcomer(rank)
        assert "once" in hear(sock)
        say(sock, loop=loop)
        return sock


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.place.close()
    assert not desk.place._thread.is_alive()


def say(sock: socket.socket, **message: object) -> None:
    sock.sendall(json.dumps(message).encode() + b"\n")


def hear(sock: socket.socket) -> dict[str, object]:
    message: dict[str, object] = json.loads(sock.makefile().readline())
    return message


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


STRANGE = {
    "deep": b"[" * 4000,
    "a list": b"[1]",
    "a number": b"1",
    "not JSON": b"GET / HTTP/1.1",
    "not text": b"\xff\xfe",
    "half a character": rb'{"resize": 1, "rank": 0, "secret": "\ud800"}',
    "no secret": b'{"resize": 1, "rank": 0}',
    "a list for a secret": b'{"resize": 1, "rank": 0, "secret": []}',
    "a wrong secret": b'{"resize": 1, "rank": 0, "secret": "guessed"}',
    "no rank": b'{"resize": 1, "secret": "secret"}',
    "rank true": b'{"resize": 1, "rank": true, "secret": "secret"}',
    "a rank out of range": b'{"resize": 1, "rank": 2, "secret": "secret"}',
    "an infinite resize": b'{"resize": 1e999, "rank": 0, "secret": "secret"}',
    "a resize of the past": b'{"resize": 0, "rank": 0, "secret": "secret"}',
    "too long": b'{"resize": 1, "rank": 0, "secret": "' + b"x" * GREETING_BYTES + b'"}',
}


@pytest.mark.parametrize("line", STRANGE.values(), ids=STRANGE.keys())
def test_strangers_are_sent_away_and_newcomers_still_join(desk: Desk, line: bytes) -> None:
    desk.place.expect(1, SECRET, 2, 60)
    with desk.connect() as stranger, desk.arrive(0), desk.arrive(1):
        stranger.sendall(line + b"\n")
        assert is_closed(stranger)
        wait_until(desk.place.alive)
    assert all(not reason.startswith("the rendezvous") for _, reason in desk.lost)


def test_a_line_without_an_end_is_cut_off(desk: Desk) -> None:
    with desk.connect() as stranger:
        stranger.sendall(b"x" * 3 * GREETING_BYTES)
        assert is_closed(stranger)


def test_only_a_greeting_is_heard_before_the_go(desk: Desk) -> None:
    with desk.newcomer(0) as stranger:
        say(stranger, error="let me in")
        assert is_closed(stranger)


def test_nonsense_of_a_newcomer_fails_its_resize_only(desk: Desk) -> None:
    for resize in (1, 2):
        desk.place.expect(resize, SECRET, 1, 60)
        with desk.newcomer(0, resize=resize) as newcomer:
            hear(newcomer)
            say(newcomer, loop="one")
            assert is_closed(newcomer)
        wait_until(desk.heard_of(resize))
        assert desk.lost[-1] == (resize, f"newcomer 0 {ENDED}")
        desk.place.dismiss()


def test_who_comes_before_the_go_is_admitted_with_it(desk: Desk) -> None:
    with desk.newcomer(0) as early:
        desk.place.expect(1, SECRET, 1, 60)
        assert hear(early) == {**NUMBERS, "size": 4, "once": ["cmVzdWx0"]}


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({}, "protocol 0, which is too old"),
        ({"protocol": 9, "oldest_reader": 9}, "protocol 9, which is too new"),
        ({"protocol": "x"}, "expected a number"),
    ],
)
def test_another_protocol_is_refused_by_number(
    desk: Desk, numbers: dict[str, object], words: str
) -> None:
    desk.place.expect(1, SECRET, 1, 60)
    with desk.connect() as newcomer:
        say(newcomer, **numbers, resize=1, rank=0, secret=SECRET)
        assert words in str(hear(newcomer)["refused"])
        wait_until(desk.heard_of(1))
    assert words in desk.lost[0][1]
    assert "joining rank 0" in desk.lost[0][1]


def test_a_newer_protocol_that_this_version_reads_is_taken(desk: Desk) -> None:
    desk.place.expect(1, SECRET, 1, 60)
    with desk.connect() as newcomer:
        say(newcomer, protocol=9, oldest_reader=1, new="x", resize=1, rank=0, secret=SECRET)
        assert hear(newcomer)["size"] == 4
        say(newcomer, loop=1, unknown=[1])
        wait_until(desk.place.alive)


def test_a_rank_is_taken_once(desk: Desk) -> None:
    desk.place.expect(1, SECRET, 2, 60)
    with desk.arrive(0) as first, desk.newcomer(0) as second:
        assert is_closed(second)
        desk.place.announce("port")
        assert hear(first) == {"port": "port"}
    wait_until(lambda: desk.lost)


def test_strangers_do_not_crowd_out_newcomers(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "MOST_STRANGERS", 4)
    silent = [desk.connect() for _ in range(6)]
    wrong = [desk.newcomer(0, resize=99) for _ in range(6)]
    desk.place.expect(1, SECRET, 2, 60)
    with desk.arrive(0), desk.arrive(1):
        wait_until(desk.place.alive)
        assert is_closed(silent[0])
        assert is_closed(silent[1])
    for sock in silent + wrong:
        sock.close()


def test_a_full_house_opens_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "MOST_STRANGERS", 2)
    monkeypatch.setattr(door, "PATIENCE_S", 1.0)
    early = [desk.newcomer(0, resize=9) for _ in range(3)]  # none is idle: nobody knows the resize
    assert all(is_closed(sock) for sock in early)
    desk.place.expect(1, SECRET, 1, 60)
    with desk.arrive(0):
        wait_until(desk.place.alive)
    for sock in early:
        sock.close()


def test_time_runs_only_while_somebody_is_missing(desk: Desk) -> None:
    desk.place.expect(1, SECRET, 2, 0.5)
    with desk.arrive(0), desk.arrive(1):
        wait_until(lambda: desk.gathered)
        assert desk.place.complete()
        used, since = time.process_time(), time.monotonic()
        wait_until(lambda: time.monotonic() > since + 1.5, every=0.1)
        assert time.process_time() - used < 0.5
        assert (desk.gathered, desk.lost) == (1, [])


def test_who_does_not_come_in_time_is_named_once(desk: Desk) -> None:
    desk.place.expect(1, SECRET, 3, 0.1)
    with desk.arrive(1):
        wait_until(lambda: desk.lost)
        desk.place.enter(2)
        desk.place.enter(3)
        assert desk.lost == [(1, "newcomers [0, 2] did not come in time")]


def test_newcomers_at_an_old_loop_are_sent_on(desk: Desk) -> None:
    desk.place.expect(1, SECRET, 1, 60)
    with desk.arrive(0) as newcomer:
        wait_until(desk.place.complete)
        desk.place.enter(2)
        assert not desk.place.complete()
        assert hear(newcomer) == {"skip": True}
        wait_until(lambda: desk.gathered == 2)
        say(newcomer, loop=2)
        wait_until(desk.place.alive)


def test_a_newcomer_that_is_gone_is_noticed_by_both_threads(desk: Desk) -> None:
    for resize in range(1, 30):
        desk.place.expect(resize, SECRET, 1, 60)
        newcomer = desk.newcomer(0, resize=resize)
        hear(newcomer)
        say(newcomer, loop=1)
        wait_until(desk.place.alive, every=0.0001)
        newcomer.close()
        wait_until(lambda: not desk.place.alive(), every=0.0001)
        wait_until(desk.heard_of(resize))
        desk.place.dismiss()


def test_a_fault_of_the_thread_is_a_reason_to_fail_now_and_later(desk: Desk) -> None:
    desk.fault = MemoryError("results")
    desk.place.expect(1, SECRET, 1, 60)
    with desk.newcomer(0) as newcomer:
        wait_until(lambda: desk.lost)
        assert desk.lost == [(1, "the rendezvous failed: MemoryError: results")]
        assert is_closed(newcomer)
    with pytest.raises(OSError, match="results"):
        desk.place.expect(2, SECRET, 1, 60)
    with pytest.raises(ConnectionRefusedError):
        desk.connect()
    desk.place.enter(2)
    desk.place.dismiss()
