"""What a coordinator says in talks, about GOs and about itself; no MPI, no server."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from pliant.appkit.coordinator.answer_offer import OfferTerms, OnOffer, answer_offer
from pliant.appkit.coordinator.coordinator import Coordinator, ProgramInfo
from pliant.appkit.coordinator.messages import (
    BegunReport,
    CoordinatorReport,
    Decision,
    Hello,
    NegotiationMessage,
    Offer,
    Progress,
    RequestRecord,
    RequestState,
    ResizeOutcome,
    Withdrawn,
)
from pliant.appkit.environment import Environment
from pliant.appkit.mpi.membership import Membership
from pliant.core.model.negotiation import Direction, Item, ItemStatus, Template, Verb
from pliant.core.model.size_request import RequestAnswer, RequestOutcome
from pliant.core.values.sizes import Sizes, parse_sizes

SIZES = parse_sizes("1-8")


class Wire:
    """A channel that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[CoordinatorReport] = []

    def start(self) -> None:
        pass

    def send(self, report: CoordinatorReport) -> None:
        self.sent.append(report)

    def stop(self, timeout: float) -> None:
        pass


class Desk:
    """A coordinator of four processes, in its first loop."""

    def __init__(self, folder: Path) -> None:
        (folder / "token").write_bytes(b"token")
        environment = Environment(
            7, 1, 0, 0, False, -1, "", "", str(folder / "token"), "127.0.0.1", (0, 1, 2, 3)
        )
        member = Membership(None, 0, (0, 1, 2, 3))
        member.size = 4
        self.on_offer: OnOffer | None = None
        self.sees: Callable[[Offer], Offer] = lambda offer: offer
        self.asked: RequestRecord | None = None
        program = ProgramInfo(
            environment=environment,
            membership=member,
            sizes=str(SIZES),
            preferred=0,
            answer_offer=lambda offer: answer_offer(self.sees(offer), SIZES, self.on_offer),
            progress=lambda: Progress(0.0, 0, 0, 0),
            once=list,
            asked=lambda: self.asked,
            on_request=True,
        )
        self.coordinator = Coordinator(program)
        self.wire = Wire()
        self.coordinator.attach(self.wire)
        self.coordinator.begin_stream()
        self.coordinator.enter_loop(1)

    def hear(self, verb: Verb, size: int = 2, number: int = 1, place: int = 1) -> Template | None:
        """The server says something, or about something, of a round; the answer."""
        direction = Direction.RECEIVE if size > 4 else Direction.RELEASE
        item = Item("processors", abs(size - 4), direction, sizes=str(size))
        template = Template(number, 7, 0, verb, (item,), round=place)
        return self.coordinator.receive_offer(template) or self.coordinator.answer_offer(template)

    def answer(self, verb: Verb, size: int = 2, number: int = 1, place: int = 1) -> Template:
        reply = self.hear(verb, size, number, place)
        assert reply is not None
        return reply

    def go(self, number: int = 1, leaving: tuple[int, ...] = (2, 3)) -> bool:
        """The server says GO; whether the coordinator takes it."""
        self.coordinator.go(Decision(number, 1, leaving))
        return self.coordinator.ready


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.coordinator.close()


def test_an_offer_is_accepted_and_its_go_is_taken(desk: Desk) -> None:
    reply = desk.answer(Verb.OFFER)
    assert (reply.verb, reply.items[0].status) == (Verb.ACCEPT, ItemStatus.ACCEPTED)
    assert desk.go()


@pytest.mark.parametrize("verb", [Verb.REJECT, Verb.WITHDRAW, Verb.ACCEPT, Verb.EXPIRE])
def test_what_is_no_proposal_gets_no_answer(desk: Desk, verb: Verb) -> None:
    assert desk.hear(verb) is None
    assert not desk.go()
    assert desk.wire.sent == [Withdrawn(1)]


@pytest.mark.parametrize(("end", "goes"), [(Verb.ACCEPT, True), (Verb.REJECT, False)])
def test_the_servers_word_on_a_counter_ends_the_talk(desk: Desk, end: Verb, goes: bool) -> None:
    desk.on_offer = lambda _: 3
    counter = desk.answer(Verb.OFFER)
    assert (counter.verb, counter.round) == (Verb.COUNTER, 2)
    item = counter.items[0]
    assert (item.sizes, item.quantity, item.direction) == ("3", 1, Direction.RELEASE)
    assert not desk.go(), "nobody has agreed yet"
    desk.hear(Verb.WITHDRAW, number=1)
    desk.on_offer = lambda _: 3
    assert desk.answer(Verb.OFFER, number=2).verb is Verb.COUNTER
    assert desk.hear(end, size=3, number=2, place=2) is None
    assert desk.go(2, leaving=(3,)) is goes


def test_counters_go_on_until_a_last_word(desk: Desk) -> None:
    seen: list[bool] = []

    def wish(offer: object) -> int:
        seen.append(getattr(offer, "final", False))
        return 3

    desk.on_offer = wish
    assert desk.answer(Verb.OFFER, 1).verb is Verb.COUNTER
    assert desk.answer(Verb.COUNTER, 2, place=3).verb is Verb.COUNTER
    last = desk.answer(Verb.FINAL, 2, place=5)
    assert (last.verb, last.reason) == (Verb.REJECT, "the program wants 3 processors")
    assert seen == [False, False, True]
    assert not desk.go()


def test_a_last_word_can_be_accepted(desk: Desk) -> None:
    assert desk.answer(Verb.FINAL, 2).verb is Verb.ACCEPT
    assert desk.go()


def test_a_program_that_counters_a_last_word_refuses_it(desk: Desk) -> None:
    desk.on_offer = lambda _: 3
    desk.sees = lambda offer: replace(offer, final=False)  # it overlooks that
    reply = desk.answer(Verb.FINAL, 2)
    assert reply.verb is Verb.REJECT
    assert "not allowed" in reply.reason


def test_an_offer_that_is_made_again_is_refused_with_a_reason(desk: Desk) -> None:
    desk.on_offer = lambda _: False
    assert desk.answer(Verb.OFFER).reason == "the program refused"
    assert desk.answer(Verb.OFFER).reason == "negotiation 1 is over"
    desk.on_offer = None
    assert desk.answer(Verb.OFFER, number=2).verb is Verb.ACCEPT
    assert "not allowed" in desk.answer(Verb.OFFER, size=3, number=2).reason
    assert desk.go(2), "what was agreed on stands"


def test_an_offer_that_comes_twice_is_answered_once(desk: Desk) -> None:
    item = Item("processors", 2, Direction.RELEASE, sizes="2")
    template = Template(1, 7, 0, Verb.OFFER, (item,), round=1)
    assert desk.coordinator.receive_offer(template) is None
    assert desk.coordinator.receive_offer(template) is None, "the program has not been asked yet"
    answer = desk.coordinator.answer_offer(template)
    assert answer is not None
    assert answer.verb is Verb.ACCEPT
    assert desk.coordinator.answer_offer(template) is None
    assert desk.hear(Verb.OFFER) is None, "nor when it was answered"
    assert desk.go()


def test_a_withdrawn_offer_cannot_go(desk: Desk) -> None:
    desk.answer(Verb.OFFER)
    desk.coordinator.withdraw(1)
    assert not desk.go()
    assert desk.wire.sent == [Withdrawn(1), Withdrawn(1)]


def test_a_go_is_taken_once(desk: Desk) -> None:
    desk.answer(Verb.OFFER)
    assert desk.go()
    assert desk.go()
    assert desk.coordinator.begin(1) is not None
    assert not desk.go(), "begun"
    desk.coordinator.finish(ResizeOutcome(1, False, 0, (0, 1, 2, 3)))
    assert not desk.go(), "done"
    assert desk.wire.sent[-1] == Withdrawn(1)


def test_a_new_stream_forgets_the_negotiations_of_the_last(desk: Desk) -> None:
    desk.answer(Verb.OFFER)
    desk.coordinator.begin_stream()
    assert desk.answer(Verb.OFFER).verb is Verb.ACCEPT
    desk.coordinator.begin_stream()
    assert not desk.go()


def test_between_loops_nothing_is_agreed(desk: Desk) -> None:
    desk.answer(Verb.OFFER)
    desk.on_offer = lambda _: 3
    counter = desk.answer(Verb.OFFER, number=2)
    desk.coordinator.leave_loop()
    withdrawal = replace(counter, verb=Verb.WITHDRAW)
    assert desk.wire.sent == [NegotiationMessage(withdrawal), Withdrawn(1)]
    assert desk.hear(Verb.ACCEPT, number=2) is None
    assert desk.answer(Verb.OFFER, number=3).reason == "the application is between its loops"
    desk.coordinator.enter_loop(2)
    assert not desk.go(1)
    assert not desk.go(2)


def test_a_loop_that_ends_while_the_program_thinks_ends_the_offer(desk: Desk) -> None:
    def think(_: object) -> None:
        desk.coordinator.leave_loop()

    desk.on_offer = think
    assert desk.answer(Verb.OFFER).reason == "the application is between its loops"


def leave(_: object) -> None:
    raise SystemExit


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def fail_without_words(_: object) -> None:
    raise Wordless


@pytest.mark.parametrize(
    ("wish", "text"),
    [
        (lambda _: "many", "SizesError"),
        (lambda _: [2, "3"], "TypeError"),
        (lambda _: [], "1 to 4096 totals"),
        (lambda _: count(1), "1 to 4096 totals"),
        (lambda _: OfferTerms(price=-1.0), "price=-1.0"),
        (lambda _: OfferTerms(not_before_s=math.inf), "not_before_s=inf"),
        (lambda _: 1.5, "TypeError"),
        (lambda _: 1 // 0, "ZeroDivisionError"),
        (leave, "SystemExit"),
        (fail_without_words, "Wordless"),
        (lambda _: OfferTerms(reason=5), "reason=5"),  # type: ignore[arg-type]
        (lambda _: 0, "wants 0"),
        (lambda _: 4, "wants 4"),
        (lambda _: 9, "wants 9"),
    ],
)
def test_a_program_that_answers_nonsense_refuses(desk: Desk, wish: OnOffer, text: str) -> None:
    desk.on_offer = wish
    reply = desk.answer(Verb.OFFER)
    assert reply.verb is Verb.REJECT
    assert text in reply.reason


def test_an_offer_that_cannot_be_read_is_refused(desk: Desk) -> None:
    for items in ((), (Item("processors", 1, Direction.RELEASE, sizes="many"),)):
        number = 1 + len(items)
        offer = Template(number, 7, 0, Verb.OFFER, items, round=1)
        reply = desk.coordinator.receive_offer(offer) or desk.coordinator.answer_offer(offer)
        assert reply is not None
        assert (reply.verb, "ValueError" in reply.reason) == (Verb.REJECT, True)


def test_hello_tells_what_has_begun(desk: Desk) -> None:
    def said() -> tuple[int, bool]:
        hello: Hello = desk.coordinator.begin_stream()
        return hello.pending_resize, hello.begun

    assert said() == (0, False)
    desk.answer(Verb.OFFER)
    desk.go()
    assert said() == (1, False)
    assert desk.coordinator.begin(1) is not None
    assert desk.wire.sent == [BegunReport(1)]
    assert said() == (1, True)
    desk.coordinator.finish(ResizeOutcome(1, False, 0, (0, 1, 2, 3)))
    assert said() == (0, False)


def test_joining_ranks_that_cannot_meet_fail_the_growth(desk: Desk) -> None:
    desk.answer(Verb.OFFER, 5)
    desk.coordinator.rendezvous.close()
    desk.coordinator.go(Decision(1, 1, joining=(4,), secret="secret"))
    outcome = desk.wire.sent[-1]
    assert isinstance(outcome, ResizeOutcome)
    assert (outcome.stage, outcome.reason) == ("join", "the rendezvous is closed")
    assert desk.answer(Verb.OFFER, number=2).verb is Verb.ACCEPT


# -------------------------------------------------------------------- what the program asks for


def asked(total: int, state: RequestState = RequestState.PENDING) -> RequestRecord:
    return RequestRecord(3, Sizes((total,)), "", 0.0, state)


def test_a_release_goes_as_the_server_takes_it(desk: Desk) -> None:
    desk.asked = asked(2)
    assert desk.hear(Verb.ACCEPT) is None
    assert desk.go()


@pytest.mark.parametrize(
    ("request_", "taken"),
    [
        (None, 2),
        (asked(2, RequestState.CANCELLED), 2),
        (asked(3), 2),
        (asked(6), 6),
    ],
)
def test_the_server_takes_nothing_that_was_not_given(
    desk: Desk, request_: RequestRecord | None, taken: int
) -> None:
    desk.asked = request_
    assert desk.hear(Verb.ACCEPT, taken) is None
    assert not desk.go()
    assert desk.wire.sent == [Withdrawn(1)]


def test_a_release_between_loops_is_withdrawn(desk: Desk) -> None:
    desk.asked = asked(2)
    desk.hear(Verb.ACCEPT)
    desk.coordinator.leave_loop()
    assert not desk.go()
    assert desk.wire.sent == [Withdrawn(1), Withdrawn(1)]


def test_hello_says_what_was_asked_for_until_that_is_answered(desk: Desk) -> None:
    assert desk.coordinator.begin_stream().on_request
    for state in (RequestState.PENDING, RequestState.CANCELLED):
        desk.asked = asked(2, state)
        assert desk.coordinator.begin_stream().asked == desk.asked
    desk.asked = replace(asked(2), heard=True)
    assert desk.coordinator.begin_stream().asked is None


def test_the_answer_waits_for_the_safe_point(desk: Desk) -> None:
    answers = [RequestAnswer(n, RequestOutcome.GRANTED, 4) for n in (1, 2)]
    assert desk.coordinator.request_answer is None
    for answer in (answers[1], answers[0]):
        desk.coordinator.on_request_answer(answer)
    assert desk.coordinator.take_request_answer() == answers[1], "the latest request's counts"
    assert desk.coordinator.request_answer is None
