"""Trigger the failpoints of the execute thread, at which fault tests stop or delay the server.

A failpoint belongs to a step of a job, such as its start or an offer. So a round triggers only the
failpoints of the steps in its result. Their names are written out, because a test compares them
with the list of all failpoints.
"""

from __future__ import annotations

from collections.abc import Iterator

from pliant.core.commands import AnswerUser, Command, Ended, Kill, Launch, OpenStandby
from pliant.faults import active, failpoint
from pliant.server.execution.commit_batch import CommitBatch

#: Failpoints by step: before the commit, after it, and after the resulting messages were sent.
_BEFORE = {
    "offer": "server.offer.before_commit",
    "prepare": "server.prepare.before_commit",
    "go": "server.go.before_commit",
    "outcome": "server.outcome.before_commit",
    "release": "server.release.before_commit",
    "start": "server.start.before_commit",
    "word": "server.word.before_commit",
    "kill": "server.kill.before_commit",
    "end": "server.end.before_commit",
}
_AFTER = {
    "offer": "server.offer.after_commit",
    "prepare": "server.prepare.after_commit",
    "go": "server.go.after_commit",
    "outcome": "server.outcome.after_commit",
    "release": "server.release.after_commit",
    "start": "server.start.after_commit",
    "word": "server.word.after_commit",
    "kill": "server.kill.after_commit",
    "end": "server.end.after_commit",
}
_PROPOSED = {"offer": "server.offer.sent"}
_SENT = {"go": "server.go.sent", "start": "server.start.sent", "kill": "server.kill.sent"}

#: Steps that are recognised by the kind of their event.
_NOTES = {
    "offer.sent": "offer",
    "resize.go": "go",
    "job.resized": "outcome",
    "resize.rolled_back": "outcome",
    "processors.released": "release",
}


def before_commit(result: CommitBatch) -> None:
    """Trigger those failpoints for ``result`` that lie before its commit and before any message."""
    _reach(result, _BEFORE)


def proposed(result: CommitBatch) -> None:
    """Trigger those failpoints for ``result`` that lie between its proposals and its commit.

    Proposals, which offer an application another size, are the only messages before the commit.
    """
    _reach(result, _PROPOSED)


def after_commit(result: CommitBatch) -> None:
    """Trigger those failpoints for ``result`` that lie between its commit and its messages."""
    _reach(result, _AFTER)


def sent(result: CommitBatch) -> None:
    """Trigger those failpoints for ``result`` that lie after all its messages were sent."""
    _reach(result, _SENT)


def _reach(result: CommitBatch, names: dict[str, str]) -> None:
    for step in _steps(result) if active() else ():
        if step in names:
            failpoint(names[step])


def _steps(result: CommitBatch) -> Iterator[str]:
    for note in result.notes:
        if note.kind in _NOTES:
            yield _NOTES[note.kind]
    for command in result.commands:
        if step := _step_of(command):
            yield step


def _step_of(command: Command) -> str:
    match command:
        case Launch():
            return "prepare" if command.resize else "start"
        case OpenStandby():
            return "prepare"
        case Kill():
            return "kill"
        case AnswerUser():
            return "word"
        case Ended():
            return "end"
        case _:
            return ""
