"""What a program asks for, and what it is told: one process, no MPI, no server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pliant.appkit import RequestError, RequestState, SizesError
from pliant.appkit.appkit_errors import JobLeave
from pliant.appkit.coordinator.messages import RequestRecord
from pliant.appkit.coordinator.program_size_requests import Request, Requests
from pliant.appkit.mpi.membership import Membership, MembershipPhase
from pliant.core.model.size_request import RequestAnswer, RequestOutcome
from pliant.core.support.input_limits import MAX_TEXT
from pliant.core.values.sizes import Sizes, parse_sizes


class ProgramInfo:
    """The requests of one process of a job, and what reaches the server."""

    def __init__(self, size: int = 4, sizes: str = "1-64", *, managed: bool = True) -> None:
        self.member = Membership(None)
        self.member.size, self.member.phase = size, MembershipPhase.MEMBER
        self.told: list[RequestRecord] = []
        program = parse_sizes(sizes) if sizes else None
        tell = self.told.append if managed else None
        self.book = Requests(self.member, program, tell)

    def request(self, sizes: int | str, why: str = "", **more: Any) -> Request:
        deadline, prefer = more.get("deadline"), more.get("prefer")
        return self.book.request(sizes, why, deadline, prefer)

    def release(self, n: int = 1, to: int | None = None, why: str = "") -> Request:
        return self.book.release(n, to, why)

    def answer(self, outcome: RequestOutcome, size: int = 4, reason: str = "") -> None:
        number = self.told[-1].number
        self.book.receive_answer(RequestAnswer(number, outcome, size, reason))


@pytest.mark.parametrize("outcome", list(RequestOutcome))
def test_an_answer_ends_a_request(outcome: RequestOutcome) -> None:
    program = ProgramInfo()
    request = program.request("8-16", "a finer mesh")
    assert (request.state, request.done, request.size, request.reason) == ("pending", False, 0, "")
    (asked,) = program.told
    assert (asked.number, str(asked.sizes), asked.reason) == (1, "8-16", "a finer mesh")
    program.answer(outcome, 12, "so it is")
    assert (request.state, request.done) == (outcome.value, True)
    assert (request.size, request.reason, request.sizes) == (12, "so it is", "8-16")
    program.answer(RequestOutcome.REFUSED)
    assert request.state == outcome.value, "one answer counts"


@pytest.mark.parametrize(
    ("sizes", "prefer", "sent", "wanted"),
    [
        (8, None, "8", 8),
        ("2-100", None, "{2,4,8,16,32,64}", 64),
        ("3-9", None, "{4,8}", 8),
        ("2-8", 4, "{2,4,8}", 4),
        ("3-9", 5, "{4,8}", 8),
    ],
)
def test_what_the_program_cannot_have_is_not_asked_for(
    sizes: int | str, prefer: int | None, sent: str, wanted: int
) -> None:
    program = ProgramInfo(sizes="1-64:pow2")
    program.book.request(sizes, "", None, prefer)
    (asked,) = program.told
    assert (str(asked.sizes), asked.sizes.wanted) == (sent, wanted)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda p: p.request("many"), SizesError, "many"),
        (lambda p: p.request(0), SizesError, "at least 1"),
        (lambda p: p.request(True), RequestError, "True is no number"),
        (lambda p: p.request(2.5), RequestError, "2.5 is no number"),
        (lambda p: p.request("2-8", prefer=9), SizesError, "preferred size 9"),
        (lambda p: p.request(65), RequestError, "none of 65 is one of the program's sizes 1-64"),
        (lambda p: p.request(8, deadline=0), RequestError, "deadline=0"),
        (lambda p: p.request(8, deadline=float("nan")), RequestError, "deadline=nan"),
        (lambda p: p.request(8, deadline="5"), RequestError, "deadline='5': write seconds"),
        (lambda p: p.request(8, deadline=10**400), RequestError, "deadline=1000"),
        (lambda p: p.request("2-8", prefer="4"), RequestError, "'4' is no number"),
        (lambda p: p.request(8, "x" * (MAX_TEXT + 1)), RequestError, "why"),
        (lambda p: p.release(0), RequestError, "1 or more"),
        (lambda p: p.release(4), RequestError, "cannot give back 4, its sizes are 1-64"),
        (lambda p: p.release(to=4), RequestError, "cannot go down to 4"),
        (lambda p: p.release(to=0), RequestError, "0 is not one of the program's sizes"),
        (lambda p: p.release("one"), RequestError, "'one' is no number"),
    ],
)
def test_mistakes_are_named(
    make: Callable[[ProgramInfo], Request], error: type[Exception], text: str
) -> None:
    program = ProgramInfo()
    with pytest.raises(error) as caught:
        make(program)
    assert text in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert (program.told, program.book.latest) == ([], None)


@pytest.mark.parametrize(
    ("sizes", "give", "target"),
    [
        ("1-8", {}, 7),
        ("1-8", {"n": 3}, 5),
        ("1-8:pow2", {}, 4),
        ("", {"n": 2}, 6),
        ("1-8", {"to": 2}, 2),
    ],
)
def test_a_release_asks_for_a_smaller_total(sizes: str, give: dict[str, int], target: int) -> None:
    program = ProgramInfo(8, sizes)
    program.release(give.get("n", 1), give.get("to"))
    assert program.told[0].sizes == Sizes((target,))


def test_a_later_request_takes_the_place_of_an_earlier_one() -> None:
    program = ProgramInfo()
    first, second = program.request(8), program.request(16)
    assert (first.state, first.reason) == ("cancelled", "request 2 took its place")
    assert [asked.number for asked in program.told] == [1, 2]
    program.book.receive_answer(RequestAnswer(1, RequestOutcome.GRANTED, 8))
    assert (first.state, second.state) == ("cancelled", "pending")
    assert program.book.latest is second


def test_a_request_is_taken_back_once() -> None:
    program = ProgramInfo()
    request = program.request(8)
    request.cancel()
    request.cancel()
    assert (request.state, request.reason) == ("cancelled", "by the program")
    assert [asked.state for asked in program.told] == ["pending", "cancelled"]
    assert not program.told[-1].heard
    program.answer(RequestOutcome.GRANTED, 8)
    assert request.state == "cancelled", "the program has said so on all processes"
    assert program.book.asked is not None
    assert program.book.asked.heard


def test_an_answered_or_replaced_request_cannot_be_cancelled() -> None:
    program = ProgramInfo()
    first = program.request(8)
    second = program.request(16)
    first.cancel()
    assert second.state == "pending"
    program.answer(RequestOutcome.GRANTED, 16)
    second.cancel()
    assert second.state == "granted"
    assert len(program.told) == 2


def test_without_pliant_requests_are_refused() -> None:
    program = ProgramInfo(managed=False)
    for request in (program.request(8), program.release()):
        assert request.state is RequestState.REFUSED
        assert "does not run under Pliant" in request.reason


def test_the_others_see_what_rank_0_tells() -> None:
    first, other = ProgramInfo(), ProgramInfo()
    mine, theirs = first.request(8), other.request(8)
    first.answer(RequestOutcome.PARTLY, 6, "no more are idle")
    assert theirs.state == "pending", "not before the safe point"
    assert first.book.has_changed
    for program in (first, other):
        program.book.adopt(first.book.asked)
        assert not program.book.has_changed
    for request in (mine, theirs):
        assert (request.state, request.size) == ("granted in part", 6)


def test_a_request_of_rank_0_alone_is_everybodys_after_the_safe_point() -> None:
    first, other = ProgramInfo(), ProgramInfo()
    both = other.request(8)
    first.request(8)
    first.request(16)
    other.book.adopt(first.book.asked)
    assert both.state == "cancelled"
    assert other.book.latest is not None
    assert (other.book.latest.sizes, other.book.latest.state) == ("16", "pending")


def test_joining_ranks_share_the_latest_request() -> None:
    old, joining_rank = ProgramInfo(), ProgramInfo(size=0)
    old.request("8-16")
    joining_rank.member.phase = MembershipPhase.JOINING
    early = joining_rank.request("8-16")
    assert (early.state, joining_rank.told) == ("pending", [])
    joining_rank.member.phase = MembershipPhase.MEMBER
    joining_rank.book.adopt(old.book.asked)
    assert joining_rank.book.latest is early
    old.answer(RequestOutcome.GRANTED, 16)
    joining_rank.book.adopt(old.book.asked)
    assert (early.state, early.size) == ("granted", 16)
    early.cancel()
    assert joining_rank.told == [], "it is over"


def test_a_joining_rank_whose_job_asked_for_nothing() -> None:
    joining_rank = ProgramInfo(size=0)
    joining_rank.member.phase = MembershipPhase.JOINING
    early = joining_rank.release()
    joining_rank.member.phase = MembershipPhase.MEMBER
    joining_rank.book.adopt(None)
    assert (early.state, early.reason) == ("cancelled", "the job has asked for nothing")
    assert joining_rank.book.latest is None


def test_who_has_left_asks_for_nothing() -> None:
    program = ProgramInfo()
    request = program.request(8)
    program.member.phase = MembershipPhase.LEFT
    with pytest.raises(JobLeave):
        program.request(8)
    with pytest.raises(JobLeave):
        request.cancel()
