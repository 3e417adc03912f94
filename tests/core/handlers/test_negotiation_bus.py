"""Talks over a bus that drops, doubles, delays, re-orders: two machines, and one with the core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from corekit.talks import two_donors
from pliant.core import commands, events
from pliant.core.model.negotiation import (
    PROPOSALS,
    TRANSITIONS,
    Item,
    Negotiation,
    NegotiationError,
    NegotiationState,
    Side,
    Speaker,
    Template,
    Verb,
)
from pliant.core.model.negotiation import Direction as D
from pliant.core.model.resize import Resize

#: How often each verb is said where it may be: talks are to grow long before they end.
WEIGHTS = {Verb.OFFER: 4, Verb.COUNTER: 6, Verb.FINAL: 1, Verb.WITHDRAW: 1}
NUMBER = st.integers(0, 1000)


@dataclass(frozen=True)
class Letter:
    """What is on its way, and which proposal lay on the table of who wrote it."""

    to: Side
    template: Template
    about: Template | None


@dataclass
class Party:
    """One side: its copy of the talk, and the letters that changed it."""

    side: Side
    talk: Negotiation = field(default_factory=lambda: Negotiation(5))
    heard: list[Letter] = field(default_factory=list)
    said: int = 0

    def say(self, pick: int, *, takes_back: bool = True) -> Letter | None:
        """Say one of the things that the machine allows; not two letters are alike."""
        verbs = [*self._allowed()]
        if not takes_back:
            verbs = [verb for verb in verbs if verb is not Verb.WITHDRAW]
        if not verbs:
            return None
        verb, about = verbs[pick % len(verbs)], self.talk.proposal
        self.said += 1
        item = Item("processors", self.said, D.RELEASE)
        place = self.talk.rounds + (verb in PROPOSALS)
        template = Template(5, 1, 1, verb, (item,), place, f"{self.side} {self.said}")
        self.talk = self.talk.apply_message(self.side, template)
        return Letter(self.side.other, template, about)

    def _allowed(self) -> Iterator[Verb]:
        speaker = Speaker.ANYONE
        if self.talk.proposer is not None:
            mine = self.talk.proposer is self.side
            speaker = Speaker.PROPOSER if mine else Speaker.RESPONDER
        for state, verb, who in TRANSITIONS:
            if (state, who) == (self.talk.state, speaker):
                yield from [verb] * WEIGHTS.get(verb, 2)

    def hear(self, letter: Letter) -> None:
        """Take a letter; if it changes anything it is new, and about what lies on the table."""
        before = self.talk
        try:
            self.talk = self.talk.apply_message(self.side.other, letter.template)
        except NegotiationError:
            return
        assert letter not in self.heard, "what arrives twice changes nothing"
        assert letter.about == before.proposal, "what was said of another proposal changes nothing"
        self.heard.append(letter)


def pair() -> dict[Side, Party]:
    """Two who have not said anything."""
    return {side: Party(side) for side in Side}


STEP = st.tuples(
    st.sampled_from(
        ["server", "application", "deliver", "deliver", "double", "double", "drop", "clock"]
    ),
    NUMBER,
)


@settings(max_examples=200)
@given(st.lists(STEP, min_size=20, max_size=40))
def test_nobody_ever_agrees_to_what_the_other_did_not(steps: list[tuple[str, int]]) -> None:
    parties, bus = pair(), list[Letter]()
    for what, pick in steps:
        if what in ("server", "application"):
            said = parties[Side(what)].say(pick)
            bus += [said] if said else []
        elif what == "clock":
            party = parties[list(Side)[pick % 2]]
            if pick % 8 < 2 and party.talk.proposer is not None and not party.talk.closed:
                party.talk = party.talk.expire()
        elif bus:
            place = pick % len(bus)
            letter = bus[place] if what == "double" else bus.pop(place)
            if what != "drop":
                parties[letter.to].hear(letter)
        check(parties)


def check(parties: dict[Side, Party]) -> None:
    """Who agreed because the other accepted is right: it did, and to the same proposal."""
    for party in parties.values():
        talk, other = party.talk, parties[party.side.other].talk
        if talk.state is NegotiationState.AGREED and talk.history[-1] == (
            party.side.other,
            Verb.ACCEPT,
        ):
            assert other.state is NegotiationState.AGREED
        if talk.state is other.state is NegotiationState.AGREED:
            assert (talk.proposal, talk.proposer) == (other.proposal, other.proposer)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.booleans(), NUMBER), min_size=20, max_size=40))
def test_a_bus_that_delays_and_doubles_leads_both_to_the_same_end(
    steps: list[tuple[bool, int]],
) -> None:
    parties, bus = pair(), list[Letter]()
    spent: list[Letter] = []
    turn = Side.SERVER

    def deliver(pick: int) -> None:
        """The next letter, or the copy of an older one."""
        if pick % 3 or not bus:
            letter = spent[pick % len(spent)] if spent else None
        else:
            letter = bus.pop(0)
            spent.append(letter)
        if letter is not None:
            parties[letter.to].hear(letter)

    for speaks, pick in steps:
        turn = turn.other if parties[turn].talk.proposer is turn else turn
        opens = parties[turn].talk.proposer is None and (bus or turn is not Side.SERVER)
        said = None if opens or not speaks else parties[turn].say(pick, takes_back=False)
        if said is not None:
            bus.append(said)
        else:
            deliver(pick)
    while bus:
        deliver(0)
    assert parties[Side.SERVER].talk == parties[Side.APPLICATION].talk


# ------------------------------------------------------------------ the core on one side


class Wire:
    """A core that asks two jobs for three processors each, and what their applications say.

    What the server says arrives at once; what the applications say arrives when a test likes, more
    than once if it likes that.
    """

    def __init__(self) -> None:
        self.rig, asked = two_donors()
        self.talks: dict[tuple[int, int], Negotiation] = {}
        self.newest: dict[int, int] = {}
        self.bus: list[Letter] = []
        self.heard: list[Letter] = []
        self.said = 0
        for template in asked.values():
            self._server_says(template)

    def _server_says(self, template: Template) -> None:
        key = (template.job, template.negotiation)
        self.newest[template.job] = template.negotiation
        self.talks[key] = self.talks.get(key, Negotiation(template.negotiation)).apply_message(
            Side.SERVER, template
        )

    def answer(self, job: int, pick: int, sizes: str, holds: float) -> None:
        """Have an application answer what lies on its table."""
        key = (job, self.newest[job])
        talk = self.talks[key]
        if talk.closed or talk.proposer is not Side.SERVER or talk.proposal is None:
            return
        verbs = [Verb.COUNTER] * 4 + [Verb.ACCEPT, Verb.REJECT]
        verb = verbs[pick % len(verbs)]
        if verb is Verb.COUNTER and talk.state is NegotiationState.FINAL:
            verb = Verb.ACCEPT
        self.said += 1
        items = talk.proposal.items
        if verb is Verb.COUNTER:
            wish = replace(items[0], sizes=sizes, valid_until=self.rig.now + holds if holds else 0)
            items = (wish,)
        place = talk.rounds + (verb in PROPOSALS)
        said = replace(talk.proposal, verb=verb, items=items, round=place, reason=f"{self.said}")
        self.bus.append(Letter(Side.SERVER, said, talk.proposal))
        self.talks[key] = talk.apply_message(Side.APPLICATION, said)

    def deliver(self, letter: Letter) -> None:
        """Bring the server a letter; if that changes the talk, it is new and to the point."""
        job, number = letter.template.job, letter.template.negotiation
        before = self._open(job, number)
        table = before.negotiation.proposal if before else None
        notes = len(self.rig.notes)
        owner = self.rig.job(job)
        self.rig.do(events.OfferAnswered(owner.id, owner.run, letter.template))
        if "offer.answered" in [note.kind for note in self.rig.notes[notes:]]:
            assert letter not in self.heard, "what arrives twice changes nothing"
            assert letter.about == table, "what was said of another proposal changes nothing"
            self.heard.append(letter)

    def _open(self, job: int, number: int) -> Resize | None:
        resize = self.rig.job(job).resize
        return resize if resize is not None and resize.id == number else None

    def look(self, since: float) -> None:
        """Read what the server said since then: what it takes still held, and is what was said."""
        for withdrawn in self.rig.take(commands.SendWithdraw):
            key: tuple[int, int] = (withdrawn.job, withdrawn.resize)
            if not self.talks[key].closed:
                self.talks[key] = self.talks[key].expire()
        for go in self.rig.take(commands.SendGo):
            resize, talk = self.rig.resize(go.job), self.talks[go.job, go.resize]
            assert talk.proposal == resize.negotiation.proposal
        for sent in self.rig.take(commands.SendOffer):
            key = (sent.job, sent.template.negotiation)
            if sent.template.verb is Verb.ACCEPT:
                table = self.talks[key].proposal
                assert table is not None
                until = table.items[0].valid_until
                assert until == 0 or since < until, "it is taken after its time"
            self._server_says(sent.template)


WORDS = st.tuples(
    st.sampled_from([1, 2]),
    NUMBER,
    st.sampled_from(["1", "1", "{1,2}", "2"]),
    st.sampled_from([0.0, 0.3, 3.2]),
)
EVENTS = st.one_of(
    WORDS,
    st.tuples(st.sampled_from(["deliver", "deliver", "double"]), NUMBER),
    st.sampled_from([0.5, 0.5, 4.0]),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(EVENTS, min_size=10, max_size=25))
@example([(1, 0, "1", 0.3), (2, 4, "1", 0.0), ("deliver", 1), 0.5, ("deliver", 0)]).via("late")
@example([(1, 0, "1", 0.3), (2, 4, "1", 0.0), ("deliver", 0), 0.5, ("deliver", 0)]).via("lapsed")
def test_the_server_takes_each_word_once_while_it_holds_and_for_what_it_is_about(
    steps: list[tuple[int, int, str, float] | tuple[str, int] | float],
) -> None:
    wire = Wire()
    for step in steps:
        since = wire.rig.now
        match step:
            case (int(job), pick, sizes, holds):
                wire.answer(job, pick, sizes, holds)
            case (str(what), pick):
                if wire.bus:
                    place = pick % len(wire.bus)
                    wire.deliver(wire.bus[place] if what == "double" else wire.bus.pop(place))
            case float(seconds):
                wire.rig.wait(seconds)
        wire.look(since)
