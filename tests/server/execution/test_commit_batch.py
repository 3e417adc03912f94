"""Which part of a round's result leaves before its commit, and on which part others rely."""

from __future__ import annotations

import pytest

from pliant.core.commands import Command, Ended, Kill, Note, SendGo, SendOffer, SendWithdraw, Store
from pliant.core.model.negotiation import PROPOSALS, Template, Verb
from pliant.core.values.ids import JobId, NodeName, ResizeId
from pliant.server.database.statements import put_meta
from pliant.server.execution.commit_batch import CommitBatch


def say(job: int, verb: Verb) -> SendOffer:
    return SendOffer(JobId(job), 1, Template(5, job, 1, verb))


@pytest.mark.parametrize("verb", Verb)
def test_only_proposals_leave_early(verb: Verb) -> None:
    others: list[Command] = [
        SendGo(JobId(2), 1, ResizeId(4), 2, (1,), ()),
        Kill(JobId(3), 1),
    ]
    word = say(1, verb)
    result = CommitBatch(commands=[others[0], word, others[1]])
    early = result.take_proposals()
    assert early == ([word] if verb in PROPOSALS else [])
    assert result.commands == (others if early else [others[0], word, others[1]])


def test_an_offer_does_not_overtake_the_end_of_the_negotiation_before() -> None:
    withdrawal = SendWithdraw(JobId(1), 1, ResizeId(4), "nobody waits")
    result = CommitBatch(commands=[withdrawal, say(1, Verb.OFFER), say(2, Verb.OFFER)])
    assert result.take_proposals() == [say(2, Verb.OFFER)]
    assert result.commands == [withdrawal, say(1, Verb.OFFER)]


@pytest.mark.parametrize(
    ("result", "binds"),
    [
        (CommitBatch(commands=[Ended(JobId(1))]), True),
        (CommitBatch(commands=[Kill(JobId(1), 1)]), True),
        (CommitBatch(changes=[put_meta("key", "1")]), True),
        (CommitBatch(), False),
    ],
)
def test_what_is_done_or_asked_for_outside_binds(result: CommitBatch, binds: bool) -> None:
    assert result.must_commit_first == binds


@pytest.mark.parametrize(
    ("stored", "binds"),
    [
        (Store(nodes=frozenset([NodeName("n1")])), True),
        (Store(memory=True), True),
        (Store(jobs=frozenset([JobId(1)]), notes=(Note(0.0, "job.waits", "waits"),)), False),
    ],
)
def test_nodes_and_the_memory_of_a_strategy_bind_and_reasons_do_not(
    stored: Store, binds: bool
) -> None:
    result = CommitBatch()
    result.store(stored)
    assert result.must_commit_first == binds
