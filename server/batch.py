"""What one round of the execute thread collects before its commit."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from pliant.core.commands import Command, Note, RunStrategy, Store
from pliant.core.core import Core
from pliant.core.ids import JobId, NodeName
from pliant.server.database.changes import (
    Change,
    add_note,
    drop_node,
    put_meta,
    put_node,
    update_job,
)


@dataclass(slots=True)
class Batch:
    """Everything to store, and everything to do afterwards."""

    plan: RunStrategy | None = None
    jobs: set[JobId] = field(default_factory=set)
    nodes: set[NodeName] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)
    memory: bool = False
    changes: list[Change] = field(default_factory=list)
    effects: list[Command] = field(default_factory=list)

    def store(self, command: Store) -> None:
        """Merge what the core wants durable."""
        self.jobs |= command.jobs
        self.nodes |= command.nodes
        self.notes += command.notes
        self.memory |= command.memory

    def rows(self, core: Core, stored_resize: int) -> list[Change]:
        """The rows of this batch, equal statements next to each other."""
        rows = [update_job(core.jobs[job]) for job in sorted(self.jobs) if job in core.jobs]
        rows += [put_node(core.nodes[node]) for node in sorted(self.nodes) if node in core.nodes]
        rows += [drop_node(node) for node in sorted(self.nodes) if node not in core.nodes]
        rows += [add_note(note) for note in self.notes]
        if self.memory:
            rows.append(put_meta("memory", json.dumps(core.memory)))
        if core.next_resize != stored_resize:
            rows.append(put_meta("next_resize", str(core.next_resize)))
        return rows + self.changes
