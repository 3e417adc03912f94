"""Accounting: the usage of each user, and the phases of jobs that are over.

A phase is a time in which a job has the same processors. A job is charged for the processors of its
committed allocation, from its start until its last process has exited. A job that shrinks is
charged less from the commit of the resize on. Processors that are reserved for it, or that joining
and leaving ranks hold meanwhile, are not charged.

The cost of recording a change does not depend on the number of jobs and users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pliant.core.model.jobs import Job
from pliant.core.model.usage import AllocationPhase, OpenPhase, Usage
from pliant.core.values.fair_share_settings import Shares
from pliant.core.values.ids import NodeName
from pliant.core.values.processors import NONE, ProcessorMap, count

_Key = tuple[str, str]


class Accounting:
    """Counts the processor-seconds of all users, and collects the phases of jobs.

    A phase is a time in which a job has the same processors.

    Args:
        shares: the shares of users and accounts, with the half-life of usage.
        keep_phases: whether ended phases are collected, to be stored.
    """

    def __init__(self, shares: Shares | None = None, *, keep_phases: bool = True) -> None:
        self.shares = shares or Shares()
        self._keep_phases = keep_phases
        self._rows: dict[_Key, Usage] = {}
        self._tuple: tuple[Usage, ...] | None = ()
        #: Phases and usage that are not stored yet.
        self._phases: list[AllocationPhase] = []
        self._changed: dict[_Key, None] = {}

    @property
    def rows(self) -> tuple[Usage, ...]:
        """Return a row for each user and account: decayed usage, and the processors used now."""
        if self._tuple is None:
            self._tuple = tuple(self._rows.values())
        return self._tuple

    def configure(self, shares: Shares, now: float) -> None:
        """Use other settings from now on; until now, usage decays by the old half-life."""
        if shares.half_life_s != self.shares.half_life_s:
            for key, row in self._rows.items():
                seconds = row.at_time(now, self.shares.half_life_s)
                self._rows[key] = row._replace(seconds=seconds, at=now)
                self._changed[key] = None
            self._tuple = None
        self.shares = shares

    def restore(self, rows: Iterable[Usage]) -> None:
        """Take over the usage that an earlier server stored; called before the jobs are added."""
        self._rows = {(row.account, row.user): row._replace(processors=0) for row in rows}
        self._tuple = None

    def add_restored(self, job: Job) -> None:
        """After a restart of the server, count the processors that a restored job still has."""
        phase = job.phase
        if phase is not None:
            key = (job.spec.account, job.spec.user)
            row = self._rows.get(key) or Usage(*key, 0.0, phase.since, 0)
            self._rows[key] = row._replace(processors=row.processors + count(phase.allocation))
            self._tuple = None

    def update(
        self, job: Job, allocation: ProcessorMap, now: float, names: Callable[..., list[NodeName]]
    ) -> None:
        """Charge a job for its new allocation from now on; do nothing if it has not changed.

        The time with the old allocation (a phase of the job) has ended, and is kept to be stored.

        Args:
            job: the job.
            allocation: its processors from now on; NONE if it has none.
            now: the present, in seconds since the epoch.
            names: a function that returns the names of the nodes that have the given processors.
        """
        phase = job.phase
        before = NONE if phase is None else phase.allocation
        if allocation == before:
            return
        spec = job.spec
        key = (spec.account, spec.user)
        row = self._rows.get(key)
        used = count(before)
        if row is None:
            self._rows[key] = Usage(*key, 0.0, now, count(allocation))
        else:
            seconds = row.at_time(now, self.shares.half_life_s)
            self._rows[key] = Usage(*key, seconds, now, row.processors - used + count(allocation))
        self._tuple = None
        job.phase = OpenPhase(now, allocation, job.run) if allocation else None
        if not self._keep_phases:
            return
        self._changed[key] = None
        if phase is not None and now > phase.since:
            row_of = (job.id, phase.run, spec.user, spec.uid, spec.account, phase.since, now, used)
            self._phases.append(AllocationPhase(*row_of, tuple(names(before))))

    def take_unstored(self) -> tuple[tuple[AllocationPhase, ...], tuple[Usage, ...]]:
        """Return the ended phases and the changed usage that the last call has not returned yet.

        A phase is a time in which a job had the same processors.
        """
        phases, usage = tuple(self._phases), tuple(self._rows[key] for key in self._changed)
        self._phases.clear()
        self._changed.clear()
        return phases, usage
