"""The status board: what queries are answered from, without asking the core or the database.

The execute thread puts up new values; every value is immutable once it is up. Usage and progress
come from the streams. One small lock, held for dictionary operations only.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pliant.core.model.jobs import Job
from pliant.core.model.nodes import Node
from pliant.core.state import contract_status, resource_gate
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.isolation import isolation_policy
from pliant.core.values.processors import ProcessorMap, block, count
from pliant.server.registry.node_map import Host, NodeMap
from pliant.server.registry.node_status import NodeStatusCache
from pliant.server.registry.program import Summary

#: Ended jobs stay on the board this long; older ones are read from the database.
ENDED_JOBS_KEPT_S = 3600.0

Info = Mapping[str, Any]

#: Values of a job that change without the core's doing.
_LIVE = frozenset({"progress", "memory_bytes", "major_faults"})


@dataclass(frozen=True, slots=True)
class JobEntry:
    """A job as lists show it."""

    info: Info
    uid: int
    run: int
    held: ProcessorMap
    final: bool
    end: float | None
    #: How much of each named resource it uses.
    uses: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a job uses on a node."""

    resident_bytes: int
    major_faults: int


class StatusCache:
    """Jobs and nodes as they were after the last commit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[JobId, JobEntry] = {}
        #: Those of them that have not ended.
        self._open: dict[JobId, JobEntry] = {}
        #: Those that have, by the time of their end.
        self._ended: list[tuple[float, JobId]] = []
        self._summaries: dict[JobId, Summary] = {}
        self._nodes = NodeStatusCache()
        self._progress: dict[JobId, tuple[Mapping[str, Any], float]] = {}
        self._usage: dict[NodeName, Mapping[JobId, Usage]] = {}
        self._idle_memory: dict[NodeName, int] = {}
        self.strategy = ""
        #: How much the cluster has of each named resource.
        self.resources: Mapping[str, int] = {}

    # ---------------------------------------------------------------- put up

    def publish_summary(self, job: JobId, summary: Summary) -> None:
        """Remember paths and command of a job before it is put up."""
        with self._lock:
            self._summaries[job] = summary

    def publish_nodes(self, nodes: Iterable[Node], gone: Iterable[NodeName] = ()) -> None:
        """Put up nodes as they stand, and take down those that are gone."""
        self._nodes.publish(nodes, gone)

    def publish_jobs(self, jobs: Iterable[Job]) -> list[JobId]:
        """Put up jobs as they stand; return those that have just ended."""
        return self.publish(self.snapshot(jobs))

    def snapshot(self, jobs: Iterable[Job]) -> dict[JobId, JobEntry]:
        """Jobs as they stand, to be put up later."""
        return {job.id: self._entry(job) for job in jobs}

    def publish(self, snapshots: Mapping[JobId, JobEntry]) -> list[JobId]:
        """Put up what was snapshots; return the jobs that have just ended."""
        ended = []
        for job, entry in snapshots.items():
            with self._lock:
                before = self._jobs.get(job)
                self._jobs[job] = entry
                if not entry.final:
                    self._open[job] = entry
                    continue
                self._open.pop(job, None)
                self._progress.pop(job, None)
                if before is None or not before.final:
                    heapq.heappush(self._ended, (entry.end or 0.0, job))
                    ended.append(job)
        return ended

    def publish_progress(self, job: JobId, progress: Mapping[str, Any]) -> None:
        """Remember what an application last said of itself."""
        with self._lock:
            self._progress[job] = (progress, time.monotonic())

    def publish_usage(self, node: NodeName, idle: int, usage: Mapping[JobId, Usage]) -> None:
        """Remember what a node last said of its jobs."""
        with self._lock:
            self._idle_memory[node] = idle
            self._usage[node] = usage

    def drop_old(self, now: float) -> None:
        """Take down jobs that ended long ago."""
        with self._lock:
            while self._ended and self._ended[0][0] < now - ENDED_JOBS_KEPT_S:
                _, job = heapq.heappop(self._ended)
                self._jobs.pop(job, None)
                self._summaries.pop(job, None)

    # ---------------------------------------------------------------- read

    @property
    def processors(self) -> int:
        """Processors of all known nodes but spare ones: no job can ever have more."""
        return self._nodes.processors

    @property
    def nodes_up(self) -> int:
        """How many nodes take new work."""
        return self._nodes.up

    @property
    def node_map(self) -> NodeMap:
        """Which node has which processors; immutable."""
        return self._nodes.map

    def host(self, name: NodeName) -> Host | None:
        """What never changes about a node while it is known."""
        return self._nodes.host(name)

    def node_in_use(self, name: NodeName) -> bool:
        """Whether jobs hold processors of a node."""
        host = self.host(name)
        if host is None:
            return False
        mine = block(host.first, host.slots)
        with self._lock:
            return any(entry.held & mine for entry in self._open.values())

    def entry(self, job: JobId) -> JobEntry | None:
        """A job, if it is on the board."""
        return self._jobs.get(job)

    def is_open(self, job: JobId, run: int) -> bool:
        """Whether this run of a job may still speak."""
        entry = self._jobs.get(job)
        return entry is not None and not entry.final and entry.run == run

    def progress(self, job: JobId) -> Mapping[str, Any] | None:
        """What an application last said, with its age brought up to now."""
        with self._lock:
            found = self._progress.get(job)
        if found is None:
            return None
        progress, at = found
        age = progress["safe_point_age_s"]
        since = time.monotonic() - at
        return {**progress, "safe_point_age_s": age + since if age >= 0 else age}

    def job(self, job: JobId) -> Info | None:
        """A job as the users' socket shows it."""
        entry = self._jobs.get(job)
        if entry is None:
            return None
        return self.info(entry)

    def info(self, entry: JobEntry, fields: Collection[str] | None = None) -> Info:
        """A job as the users' socket shows it; ``fields``: which values are needed, None: all."""
        if fields is not None and _LIVE.isdisjoint(fields):
            return entry.info
        job = JobId(entry.info["id"])
        parts = [self._usage.get(node, {}) for node in entry.info["nodes"]] if entry.held else []
        usage = [part[job] for part in parts if job in part]
        return {
            **entry.info,
            "progress": self.progress(job),
            "memory_bytes": sum(part.resident_bytes for part in usage),
            "major_faults": sum(part.major_faults for part in usage),
        }

    def entries(self, *, ended_since: float | None) -> list[JobEntry]:
        """Jobs that have not ended, and those that ended since a time, by number.

        No container is made for each job: 50,000 of them would have the garbage collector look at
        everything that the server has, which holds up all threads for 0.1 s.
        """
        with self._lock:
            known = self._open if ended_since is None else self._jobs
            entries = [known[job] for job in sorted(known)]
        if ended_since is None:
            return entries
        return [e for e in entries if not e.final or (e.end or 0) > ended_since]

    def jobs(self, *, ended_since: float | None) -> list[Info]:
        """The same as the users' socket shows them."""
        return [self.info(entry) for entry in self.entries(ended_since=ended_since)]

    def nodes(self) -> list[Info]:
        """Nodes as the users' socket shows them."""
        with self._lock:
            idle = dict(self._idle_memory)
            holders = [(job, entry.held) for job, entry in self._open.items() if entry.held]
        return list(self._nodes.rows(holders, idle))

    def resource_use(self) -> dict[str, dict[str, int]]:
        """Named resources as the users' socket shows them: how much there is, and is in use."""
        used: Counter[str] = Counter()
        with self._lock:
            entries = [entry for entry in self._open.values() if entry.uses]
        for entry in entries:
            used.update(entry.uses)
        return {
            name: {"total": total, "used": used[name], "free": max(0, total - used[name])}
            for name, total in self.resources.items()
        }

    def describe_stored(self, job: Job, summary: Summary) -> Info:
        """A job that is not on the board as the users' socket shows it."""
        return {
            **_info(job, summary, self._where(job)),
            "progress": None,
            "memory_bytes": 0,
            "major_faults": 0,
        }

    def _where(self, job: Job) -> list[NodeName]:
        """The nodes of a job; of one that has ended, those that it had last."""
        return self.node_map.names(job.allocation if job.final else job.occupied)

    def _entry(self, job: Job) -> JobEntry:
        summary = self._summaries.get(job.id) or Summary("", "", "")
        nodes = self._where(job)
        info = _info(job, summary, nodes)
        uses = resource_gate.usage(job)
        return JobEntry(info, job.spec.uid, job.run, job.occupied, job.final, job.end, uses)


def _info(job: Job, summary: Summary, nodes: list[NodeName]) -> Info:
    return {
        "id": job.id,
        "name": job.spec.name,
        "user": job.spec.user,
        "class": job.job_class.value,
        "type": job.spec.type.value,
        "when_cut_off": isolation_policy(job.spec.stop_after_s),
        "state": job.state.value,
        "reason": job.why,
        "reason_code": job.wait.code.value if job.wait else "",
        "processors": count(job.occupied & job.allocation),
        "held": count(job.occupied),
        "size": job.size,
        "nodes": list(nodes),
        "sizes": str(job.sizes),
        "prefer": job.sizes.preferred,
        "time_limit_s": job.spec.time_limit_s,
        "estimate_s": job.spec.estimate_s,
        "speedup": str(job.spec.speedup),
        "grow_if": job.spec.grow_if.value if job.spec.grow_if else None,
        "priority": job.priority,
        "submit": job.spec.submit,
        "start": job.start,
        "end": job.end,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "run": job.run,
        "epoch": job.epoch,
        "stdout": summary.stdout,
        "cwd": summary.cwd,
        "command": summary.command,
        **({"resources": list(map(str, job.spec.resources))} if job.spec.resources else {}),
        **_contract(job),
    }


def _contract(job: Job) -> dict[str, Any]:
    """Return what a job's contract says and when the job is expected to end; empty without one.

    Jobs without a contract must not make the answer to `jobstat` longer.
    """
    contract = job.spec.contract
    if contract is None:
        return {}
    return {
        "deadline": contract.deadline(job.spec.submit),
        "contract": contract.to_record(),
        "promise": job.acceptance,
        "promised_start": job.promised_start,
        "expected_end": contract_status.expected_end(job),
    }
