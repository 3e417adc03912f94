"""What one round of the execute thread collects before its commit."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from pliant.core.commands import Command, Note, RunStrategy, SendOffer, SendWithdraw, Store
from pliant.core.machine import Core
from pliant.core.model.negotiation import PROPOSALS
from pliant.core.values.ids import JobId, NodeName
from pliant.server.database.meta_keys import NEXT_RESIZE
from pliant.server.database.row_versions import RowVersions
from pliant.server.database.statements import Write, add_note, drop_node, put_meta, put_node


@dataclass(slots=True)
class Batch:
    """Everything to store, and everything to do afterwards."""

    plan: RunStrategy | None = None
    jobs: set[JobId] = field(default_factory=set)
    nodes: set[NodeName] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)
    memory: bool = False
    changes: list[Write] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)

    def store(self, command: Store) -> None:
        """Merge what the core wants durable."""
        self.jobs |= command.jobs
        self.nodes |= command.nodes
        self.notes += command.notes
        self.memory |= command.memory

    def absorb(self, held: Batch) -> None:
        """Take up what an earlier one has left to be stored."""
        self.jobs |= held.jobs
        self.notes[:0] = held.notes

    @property
    def must_commit_first(self) -> bool:
        """Whether somebody outside will rely on it: then it is durable first.

        The end of a job does by its command ``Ended``.
        """
        return bool(self.commands or self.changes or self.nodes or self.memory)

    def proposals(self) -> list[Command]:
        """Take out what the server proposes in talks; not where a talk is withdrawn first."""
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

    def rows(self, core: Core, row_versions: RowVersions, stored_resize: int) -> list[Write]:
        """The rows of this batch, equal statements next to each other."""
        rows = [
            row_versions.compare_and_set(core.jobs[job])
            for job in sorted(self.jobs)
            if job in core.jobs
        ]
        rows += [put_node(core.nodes[node]) for node in sorted(self.nodes) if node in core.nodes]
        rows += [drop_node(node) for node in sorted(self.nodes) if node not in core.nodes]
        rows += [add_note(note) for note in self.notes]
        if self.memory:
            rows.append(put_meta("memory", json.dumps(core.memory)))
        if core.next_resize != stored_resize:
            rows.append(put_meta(NEXT_RESIZE, str(core.next_resize)))
        return rows + self.changes
