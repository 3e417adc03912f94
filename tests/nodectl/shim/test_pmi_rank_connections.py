"""What the ranks of a shim or of a step report through PMI reaches them and their owner."""

from __future__ import annotations

from typing import cast

from pliant.nodectl.shim.event_loop import SocketChannel
from pliant.nodectl.shim.pmi_rank_connections import PmiService, abort_reason
from pliant.nodectl.shim.ranks import Rank
from pliant.nodectl.world_folder import StartRequest


class Sent:
    """The other end of a channel: keeps what is sent to a rank."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.lines.append(data)


class Owner:
    """Two local ranks and what their owner is told about them."""

    def __init__(self) -> None:
        ranks = [(0, 4), (1, 5)]
        request = StartRequest("w", 1, 1, 0, "mpi", 2, ranks, ["p"], {}, "/", "")
        self.told: list[object] = []
        self.sent = {rank: Sent() for rank, _ in ranks}
        self.ranks = {rank: Rank(rank, at, 0) for rank, at in ranks}
        for number, rank in self.ranks.items():
            rank.pmi = cast(SocketChannel, self.sent[number])
        self.pmi = PmiService(request, self.ranks, self)

    def on_barrier(self, sequence: int, pairs: dict[str, str]) -> None:
        self.told.append((sequence, pairs))

    def on_finalize(self) -> None:
        self.told.append("finalize")

    def on_abort(self, rank: int, code: int, message: str) -> None:
        self.told.append(abort_reason(rank, code, message))


def test_a_reply_goes_to_the_rank_that_asked() -> None:
    owner = Owner()
    owner.pmi.handle(1, b"cmd=get_appnum")
    assert (len(owner.sent[0].lines), len(owner.sent[1].lines)) == (0, 1)


def test_a_rank_without_a_channel_gets_nothing() -> None:
    owner = Owner()
    owner.ranks[0].pmi = None
    owner.pmi.handle(0, b"cmd=get_appnum")
    assert owner.sent[0].lines == []


def test_ranks_leave_a_barrier_when_the_owner_releases_them() -> None:
    owner = Owner()
    owner.pmi.handle(0, b"cmd=put kvsname=w key=k value=v")
    owner.pmi.handle(0, b"cmd=barrier_in")
    assert owner.told == []
    owner.pmi.handle(1, b"cmd=barrier_in")
    assert owner.told == [(1, {"k": "v"})]
    before = [len(sent.lines) for sent in owner.sent.values()]
    owner.pmi.release({"k": "v"})
    assert [len(sent.lines) for sent in owner.sent.values()] == [n + 1 for n in before]


def test_the_owner_learns_of_finalize_and_abort() -> None:
    owner = Owner()
    owner.pmi.handle(0, b"cmd=finalize")
    owner.pmi.handle(1, b"cmd=abort exitcode=7 message= out of memory ")
    owner.pmi.handle(1, b"cmd=abort exitcode=3")
    assert owner.told == [
        "finalize",
        "rank 1 aborted with code 7 (out of memory)",
        "rank 1 aborted with code 3",
    ]
    assert owner.pmi.verdict() is None
