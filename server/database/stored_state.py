"""Everything that a starting server reads from the database, in one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.nodes import Node
from pliant.core.model.usage import Usage
from pliant.core.values.ids import JobId
from pliant.server.database.reader import Reader, StoredWorld
from pliant.server.registry.job_program import Summary


@dataclass(frozen=True)
class StoredState:
    """The state that the previous server left in the database."""

    nodes: Sequence[Node]
    open_jobs: Sequence[tuple[Job, Summary]]
    #: Jobs that have ended recently enough to be listed.
    ended_jobs: Sequence[tuple[Job, Summary]]
    #: Worlds of open jobs of which at least one rank has not exited.
    worlds: Sequence[StoredWorld]
    #: The ranks that have exited, by world.
    exits: Mapping[str, Sequence[int]]
    #: The pairs of complete barriers, by world and sequence number.
    barriers: Mapping[tuple[str, int], Mapping[str, str]]
    #: The usage of each user.
    usage: Sequence[Usage]
    #: How jobs have ended on which open jobs depend.
    ended_before: Mapping[JobId, JobState]


def read_state(reader: Reader, ended_since: float) -> StoredState:
    """Read the state that the previous server left.

    Args:
        reader: the reader of the database.
        ended_since: jobs that ended before this time (seconds since the epoch) are left out.

    Raises:
        UnreadableRowError: if a row is damaged.
    """
    nodes, open_jobs = reader.nodes(), reader.open_jobs()
    ended_jobs = reader.recent_jobs(ended_since)
    rows = reader.worlds([job.id for job, _ in open_jobs])
    exits: dict[str, list[int]] = {row.name: [] for row in rows}
    for name, rank in reader.exits(list(exits)):
        exits[name].append(rank)
    worlds = [row for row in rows if len(exits[row.name]) < len(row.processors)]
    barriers = reader.barriers([row.name for row in worlds])
    named = {other.job for job, _ in open_jobs for other in job.dependencies if other.job}
    still_open = {job.id for job, _ in open_jobs}
    ended_before = reader.states(sorted(named - still_open))
    return StoredState(
        nodes, open_jobs, ended_jobs, worlds, exits, barriers, reader.usage(), ended_before
    )
