"""The result of one round of the execute thread: rows to store and commands to carry out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from pliant.core.commands import Command, Note, RunStrategy, SendOffer, SendWithdraw, Store
from pliant.core.model.jobs import Job
from pliant.core.model.negotiation import PROPOSALS
from pliant.core.model.usage import AllocationPhase, Usage
from pliant.core.state_machine import Core
from pliant.core.values.ids import JobId, NodeName
from pliant.server.database.compare_and_set import RowVersions
from pliant.server.database.meta_keys import NEXT_RESIZE
from pliant.server.database.statements import (
    COMPARING,
    Write,
    add_note,
    add_phase,
    drop_node,
    put_meta,
    put_node,
    put_usage,
)
from pliant.server.registry.job_program import Summary


@dataclass(slots=True)
class CommitBatch:
    """The result of one round of the execute thread, in which the core handles all arrived events.

    It has the rows to store, and the commands to carry out after the commit.
    """

    plan: RunStrategy | None = None
    jobs: set[JobId] = field(default_factory=set)
    nodes: set[NodeName] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)
    memory: bool = False
    phases: list[AllocationPhase] = field(default_factory=list)
    #: By account and user; the last value counts.
    usage: dict[tuple[str, str], Usage] = field(default_factory=dict)
    changes: list[Write] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)

    def store(self, command: Store) -> None:
        """Add what the core wants to be stored: jobs, nodes, lines of the history, accounting."""
        self.jobs |= command.jobs
        self.nodes |= command.nodes
        self.notes += command.notes
        self.memory |= command.memory
        self.phases += command.phases
        for row in command.usage:
            self.usage[row.account, row.user] = row

    def absorb(self, held: CommitBatch) -> None:
        """Add the rows of ``held``, the batch of an earlier round whose commit was deferred."""
        self.jobs |= held.jobs
        self.notes[:0] = held.notes
        self.phases[:0] = held.phases
        self.usage = held.usage | self.usage

    @property
    def must_commit_first(self) -> bool:
        """Return whether this batch must be durable before the round continues.

        This is so if other processes will rely on it. An example is a batch in which a job ends: it
        contains the command ``Ended``.
        """
        return bool(self.commands or self.changes or self.nodes or self.memory)

    def take_proposals(self) -> list[Command]:
        """Remove the proposals in negotiations with applications from the batch, and return them.

        A proposal stays in the batch if the batch also withdraws an earlier negotiation of the same
        job, because the withdrawal must arrive first.
        """
        withdrawn = {each.job for each in self.commands if isinstance(each, SendWithdraw)}
        found: list[Command] = [
            each
            for each in self.commands
            if isinstance(each, SendOffer)
            and each.template.verb in PROPOSALS
            and each.job not in withdrawn
        ]
        taken = set(map(id, found))
        self.commands = [each for each in self.commands if id(each) not in taken]
        return found

    def rows(
        self,
        core: Core,
        row_versions: RowVersions,
        stored_resize: int,
        summary_of: Callable[[Job], Summary],
    ) -> list[Write]:
        """Return the rows to write; rows with equal statements are adjacent.

        Args:
            core: holds the jobs and nodes.
            row_versions: the expected versions of the open jobs' rows in the database.
            stored_resize: the number for the next resize that is stored in the database.
            summary_of: returns the summary of the program of an array's task.
        """
        rows = [
            row_versions.write(core.jobs[job], summary_of)
            for job in sorted(self.jobs)
            if job in core.jobs
        ]
        rows.sort(key=lambda write: write.statement in COMPARING)  # new tasks first
        rows += [put_node(core.nodes[node]) for node in sorted(self.nodes) if node in core.nodes]
        rows += [drop_node(node) for node in sorted(self.nodes) if node not in core.nodes]
        rows += [add_note(note) for note in self.notes]
        rows += [add_phase(phase) for phase in self.phases]
        rows += [put_usage(usage) for usage in self.usage.values()]
        if self.memory:
            rows.append(put_meta("memory", json.dumps(core.memory)))
        if core.next_resize != stored_resize:
            rows.append(put_meta(NEXT_RESIZE, str(core.next_resize)))
        return rows + self.changes
