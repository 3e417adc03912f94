"""The rendezvous among strangers: who may come in, how long it waits, how it ends."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from pliant.appkit.joining import rendezvous_listener
from pliant.appkit.joining.protocol_numbers import MAX_UNPROVEN_BYTES, NUMBERS
from pliant.appkit.joining.rendezvous import ENDED, Rendezvous
from pliant.appkit.joining.rendezvous_authentication import JoiningSide
from pliant.appkit.json_lines import JsonLines
from pliant.protos.hmac_handshake import UnprovenServerError
from testkit import wait_until

SECRET, NONCE = "secret", "0f" * 32


class Desk:
    """What a coordinator would be told."""

    def __init__(self) -> None:
        self.gathered = 0
        self.lost: list[tuple[int, str]] = []
        self.fault: Exception | None = None
        self.place = Rendezvous("127.0.0.1", self._gathered, self._lost, lambda: 4, self._once)
        self.place.set_loop(1)

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

    def greet(self, rank: int = 0, resize: int = 1, **numbers: object) -> socket.socket:
        """Connect and say who it is; prove nothing."""
        sock = self.connect()
        say(sock, **(numbers or NUMBERS), resize=resize, rank=rank, nonce=NONCE)
        return sock

    def joining_rank(self, rank: int, resize: int = 1, **numbers: object) -> JsonLines:
        """Connect and prove that it belongs to a resize."""
        lines, side = JsonLines(self.connect()), JoiningSide(SECRET, resize, rank)
        lines.send(**(numbers or NUMBERS), resize=resize, rank=rank, **side.opening)
        lines.send(**side.answer(hear(lines)))
        lines.signer = side.signer()
        return lines

    def arrive(self, rank: int, loop: int = 1) -> JsonLines:
        lines = self.joining_rank(rank)
        assert "once" in hear(lines)
        lines.send(loop=loop)
        return lines


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.place.close()
    assert "pliant-rendezvous" not in [thread.name for thread in threading.enumerate()]


def say(sock: socket.socket, **message: object) -> None:
    sock.sendall(json.dumps(message).encode() + b"\n")


def hear(lines: JsonLines) -> dict[str, Any]:
    while (message := lines.take()) is None:
        assert lines.read(), "the connection has ended"
    return message


def is_closed(where: socket.socket | JsonLines) -> bool:
    sock = where.sock if isinstance(where, JsonLines) else where
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


FIRST = b'{"protocol": 2, "oldest_reader": 2, "resize": %s, "rank": %s, "nonce": "' + (
    NONCE.encode() + b'"}'
)
STRANGE = {
    "deep": b"[" * 4000,
    "a list": b"[1]",
    "a number": b"1",
    "not JSON": b"GET / HTTP/1.1",
    "not text": b"\xff\xfe",
    "half a character": rb'{"resize": 1, "rank": 0, "nonce": "\ud800"}',
    "no nonce": b'{"protocol": 2, "oldest_reader": 2, "resize": 1, "rank": 0}',
    "a list for a nonce": b'{"resize": 1, "rank": 0, "nonce": []}',
    "a short nonce": b'{"resize": 1, "rank": 0, "nonce": "0f"}',
    "a text for a rank": FIRST % (b"1", b'"0"'),
    "rank true": FIRST % (b"1", b"true"),
    "a rank out of range": FIRST % (b"1", b"2"),
    "an infinite resize": FIRST % (b"1e999", b"0"),
    "a resize of the past": FIRST % (b"0", b"0"),
    "too long": b'{"resize": 1, "rank": 0, "nonce": "' + b"x" * MAX_UNPROVEN_BYTES + b'"}',
}


@pytest.mark.parametrize("line", STRANGE.values(), ids=STRANGE.keys())
def test_strangers_are_sent_away_and_joining_ranks_still_join(desk: Desk, line: bytes) -> None:
    desk.place.expect(1, SECRET, 2, 60)
    with desk.connect() as stranger, closing(desk.arrive(0)), closing(desk.arrive(1)):
        stranger.sendall(line + b"\n")
        assert is_closed(stranger)
        wait_until(desk.place.all_connected)
    assert all(not reason.startswith("the rendezvous") for _, reason in desk.lost)


def test_a_line_without_an_end_is_cut_off(desk: Desk) -> None:
    with desk.connect() as stranger:
        stranger.sendall(b"x" * 3 * MAX_UNPROVEN_BYTES)
        assert is_closed(stranger)


WITHOUT_PROOF: dict[str, dict[str, Any] | None] = {
    "nothing": {},
    "the secret": {"secret": SECRET},
    "the application's own proof": None,
    "a guess": {"proof": "00" * 32},
    "a loop": {"loop": 1},
    "a complaint": {"error": "the resize cannot be"},
}


@pytest.mark.parametrize("answer", WITHOUT_PROOF.values(), ids=WITHOUT_PROOF.keys())
def test_who_proves_nothing_changes_nothing(desk: Desk, answer: dict[str, Any] | None) -> None:
    desk.place.expect(1, SECRET, 1, 60)
    with closing(JsonLines(desk.greet())) as stranger:
        challenge = hear(stranger)
        assert SECRET not in str(challenge)
        stranger.send(**(challenge if answer is None else answer))
        assert is_closed(stranger)
    assert not desk.place.wait_for_error(0)
    with closing(desk.arrive(0)):
        wait_until(desk.place.all_connected)
        assert desk.lost == []


def test_a_proof_counts_for_one_connection_one_rank_and_one_resize(desk: Desk) -> None:
    desk.place.expect(1, SECRET, 2, 60)
    with (
        closing(JsonLines(desk.greet(rank=1))) as stranger,
        closing(JsonLines(desk.connect())) as other,
    ):
        side = JoiningSide(SECRET, 1, 0)
        other.send(**NUMBERS, resize=1, rank=0, **side.opening)
        hear(stranger)
        stranger.send(**side.answer(hear(other)))  # of another connection
        assert is_closed(stranger)
    side = JoiningSide(SECRET, 1, 0)
    with closing(JsonLines(desk.connect())) as stranger:
        stranger.send(**NUMBERS, resize=1, rank=1, **side.opening)
        with pytest.raises(UnprovenServerError):
            side.answer(hear(stranger))


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace(b"1", b"2"),  # another loop
        lambda line: line.partition(b" ")[2],  # not signed
        lambda line: line + line,  # said twice
    ],
)
def test_what_somebody_on_the_way_changes_is_not_acted_on(
    desk: Desk, change: Callable[[bytes], bytes]
) -> None:
    desk.place.set_loop(2)
    desk.place.expect(1, SECRET, 1, 60)
    with closing(desk.joining_rank(0)) as joining_rank:
        assert "once" in hear(joining_rank)
        assert joining_rank.signer is not None
        sealed = joining_rank.signer.sign(b'{"loop": 1}') + b"\n"
        joining_rank.sock.sendall(change(sealed))
        wait_until(desk.heard_of(1))
    assert desk.lost == [(1, f"joining rank 0 {ENDED}")]


def test_a_connection_that_does_not_greet_is_closed(desk: Desk) -> None:
    with desk.greet() as stranger:
        say(stranger, error="let me in")
        assert is_closed(stranger)


def test_nonsense_of_a_joining_rank_fails_its_resize_only(desk: Desk) -> None:
    for resize in (1, 2):
        desk.place.expect(resize, SECRET, 1, 60)
        with closing(desk.joining_rank(0, resize=resize)) as joining_rank:
            hear(joining_rank)
            joining_rank.send(loop="one")
            assert is_closed(joining_rank)
        wait_until(desk.heard_of(resize))
        assert desk.lost[-1] == (resize, f"joining rank 0 {ENDED}")
        desk.place.abort()


def test_who_comes_before_the_go_is_admitted_with_it(desk: Desk) -> None:
    side = JoiningSide(SECRET, 1, 0)
    with closing(JsonLines(desk.connect())) as early:
        early.send(**NUMBERS, resize=1, rank=0, **side.opening)
        desk.place.expect(1, SECRET, 1, 60)
        early.send(**side.answer(hear(early)))
        early.signer = side.signer()
        assert hear(early) == {**NUMBERS, "size": 4, "once": ["cmVzdWx0"]}


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"protocol": 9, "oldest_reader": 9}, "protocol 9, which is too new"),
        ({"protocol": "x"}, "expected a number"),
    ],
)
def test_another_protocol_is_refused_by_number(
    desk: Desk, numbers: dict[str, Any], words: str
) -> None:
    desk.place.expect(1, SECRET, 1, 60)
    with closing(desk.joining_rank(0, **numbers)) as joining_rank:
        assert words in str(hear(joining_rank)["refused"])
        wait_until(desk.heard_of(1))
    assert words in desk.lost[0][1]
    assert "joining rank 0" in desk.lost[0][1]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({}, "protocol 0, which is too old"),
        ({"protocol": 1, "oldest_reader": 1}, "protocol 1, which is too old"),
    ],
)
def test_an_unproven_peer_of_another_version_learns_our_version(
    desk: Desk, numbers: dict[str, object], words: str
) -> None:
    desk.place.expect(1, SECRET, 1, 60)
    with closing(JsonLines(desk.connect())) as joining_rank:
        joining_rank.send(**numbers, resize=1, rank=0, secret=SECRET)
        assert words in str(hear(joining_rank)["refused"])
        assert is_closed(joining_rank)
    assert desk.lost == []  # anybody can claim to be old


def test_a_newer_protocol_that_this_version_reads_is_taken(desk: Desk) -> None:
    desk.place.expect(1, SECRET, 1, 60)
    with closing(desk.joining_rank(0, protocol=9, oldest_reader=2, new="x")) as joining_rank:
        assert hear(joining_rank)["size"] == 4
        joining_rank.send(loop=1, unknown=[1])
        wait_until(desk.place.all_connected)


def test_a_rank_is_taken_once(desk: Desk) -> None:
    desk.place.expect(1, SECRET, 2, 60)
    with closing(desk.arrive(0)) as first, closing(desk.joining_rank(0)) as second:
        assert is_closed(second)
        desk.place.send_port("port")
        assert hear(first) == {"port": "port"}
    wait_until(lambda: desk.lost)


@pytest.mark.parametrize("words", [{}, {"resize": 99}, {"resize": 1}], ids=str)
def test_strangers_do_not_crowd_out_joining_ranks(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, words: dict[str, int]
) -> None:
    """Neither silent ones, nor those of another resize, nor those that prove nothing."""
    monkeypatch.setattr(rendezvous_listener, "MAX_UNPROVEN", 4)
    desk.place.expect(1, SECRET, 2, 60)
    strangers = []
    for _ in range(6):
        strangers.append(desk.greet(**words) if words else desk.connect())
        if words == {"resize": 1}:
            assert select.select([strangers[-1]], [], [], 30)[0], "no proof of the application"
    with closing(desk.arrive(0)), closing(desk.arrive(1)):
        wait_until(desk.place.all_connected)
        assert desk.lost == []
    for sock in strangers:
        sock.close()


def test_connections_are_accepted_again_when_unproven_ones_have_closed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous_listener, "MAX_UNPROVEN", 2)
    monkeypatch.setattr(rendezvous_listener, "MAX_UNPROVEN_S", 1.0)
    early = [desk.greet(resize=9) for _ in range(3)]  # none is idle: nobody knows the resize
    assert all(is_closed(sock) for sock in early)
    desk.place.expect(1, SECRET, 1, 60)
    with closing(desk.arrive(0)):
        wait_until(desk.place.all_connected)
    for sock in early:
        sock.close()


def test_time_runs_only_while_somebody_is_missing(desk: Desk) -> None:
    desk.place.expect(1, SECRET, 2, 0.5)
    with closing(desk.arrive(0)), closing(desk.arrive(1)):
        wait_until(lambda: desk.gathered)
        assert desk.place.is_complete()
        used, since = time.process_time(), time.monotonic()
        wait_until(lambda: time.monotonic() > since + 1.5, every=0.1)
        assert time.process_time() - used < 0.5
        assert (desk.gathered, desk.lost) == (1, [])


def test_who_does_not_come_in_time_is_named_once(desk: Desk) -> None:
    desk.place.expect(1, SECRET, 3, 0.1)
    with closing(desk.arrive(1)):
        wait_until(lambda: desk.lost)
        desk.place.set_loop(2)
        desk.place.set_loop(3)
        assert desk.lost == [(1, "joining ranks [0, 2] did not arrive in time")]


def test_joining_ranks_at_an_old_loop_are_sent_on(desk: Desk) -> None:
    desk.place.expect(1, SECRET, 1, 60)
    with closing(desk.arrive(0)) as joining_rank:
        wait_until(desk.place.is_complete)
        desk.place.set_loop(2)
        assert not desk.place.is_complete()
        assert hear(joining_rank) == {"skip": True}
        wait_until(lambda: desk.gathered == 2)
        joining_rank.send(loop=2)
        wait_until(desk.place.all_connected)


def test_a_joining_rank_that_is_gone_is_noticed_by_both_threads(desk: Desk) -> None:
    for resize in range(1, 30):
        desk.place.expect(resize, SECRET, 1, 60)
        joining_rank = desk.joining_rank(0, resize=resize)
        hear(joining_rank)
        joining_rank.send(loop=1)
        wait_until(desk.place.all_connected, every=0.0001)
        joining_rank.close()
        wait_until(lambda: not desk.place.all_connected(), every=0.0001)
        wait_until(desk.heard_of(resize))
        desk.place.abort()


def test_a_fault_of_the_thread_is_a_reason_to_fail_now_and_later(desk: Desk) -> None:
    desk.fault = MemoryError("results")
    desk.place.expect(1, SECRET, 1, 60)
    with closing(desk.joining_rank(0)) as joining_rank:
        wait_until(lambda: desk.lost)
        assert desk.lost == [(1, "the rendezvous failed: MemoryError: results")]
        assert is_closed(joining_rank)
    with pytest.raises(OSError, match="results"):
        desk.place.expect(2, SECRET, 1, 60)
    with pytest.raises(ConnectionRefusedError):
        desk.connect()
    desk.place.set_loop(2)
    desk.place.abort()
