"""The status cache: answers queries of users without asking the core or the database.

The execute thread publishes jobs and nodes after each commit. Memory use and progress come from
streams. Published values are immutable. A lock is held only for operations on dictionaries.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import FINAL_STATES
from pliant.core.model.nodes import Node, NodeLoad
from pliant.core.model.views_and_plans import NodeView
from pliant.core.state import named_resources, profit_contract_status
from pliant.core.values.dependencies import format_dependencies
from pliant.core.values.ids import JobId, NodeName, task_job
from pliant.core.values.lost_contact_policy import isolation_policy
from pliant.core.values.processors import NONE, ProcessorMap, block, count, format_ranges
from pliant.server.registry.array_tasks import (
    ArrayIndex,
    array_fields,
    info_of_pending_task,
    tasks_of_array,
)
from pliant.server.registry.job_program import PLACE_MARKS, Summary, has_mark, name_of_task
from pliant.server.registry.job_selection import JobIndex, JobSelection
from pliant.server.registry.node_status import NodeStatusCache
from pliant.server.registry.processor_nodes import Host, NodeMap
from pliant.server.registry.submission_limits import SubmissionLimits

#: Ended jobs stay in the cache this long, seconds. Older ones are read from the database.
ENDED_JOBS_KEPT_S = 3600.0

Info = Mapping[str, Any]

#: Values of a job that change without an event for the core.
_LIVE = frozenset({"progress", "memory_bytes", "major_faults"})


@dataclass(frozen=True, slots=True)
class JobEntry:
    """The cached values of a job: those that users see, and those that only the server uses."""

    info: Info
    uid: int
    run: int
    held: ProcessorMap
    final: bool
    end: float | None
    #: How much of each named resource it uses.
    uses: Mapping[str, int]
    #: As how many jobs that have not started it counts; an array counts as its pending tasks.
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory and page faults of a job on one node."""

    resident_bytes: int
    major_faults: int


class StatusCache:
    """Jobs and nodes as of the last commit, for queries. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[JobId, JobEntry] = {}
        #: Those jobs in ``_jobs`` that have not ended.
        self._open: dict[JobId, JobEntry] = {}
        #: The jobs in ``_jobs`` by user and state.
        self._index = JobIndex()
        #: The arrays in ``_jobs``.
        self._arrays = ArrayIndex()
        #: A heap of ended jobs by the time of their end.
        self._ended: list[tuple[float, JobId]] = []
        self._summaries: dict[JobId, Summary] = {}
        self._nodes = NodeStatusCache()
        self._progress: dict[JobId, tuple[Mapping[str, Any], float]] = {}
        self._usage: dict[NodeName, Mapping[JobId, MemoryUse]] = {}
        self._idle_memory: dict[NodeName, int] = {}
        #: The nodes that start jobs as their users.
        self._root_helpers: set[NodeName] = set()
        #: Called with the numbers of published jobs, in the thread that publishes.
        self.on_jobs: Callable[[Collection[JobId]], None] | None = None
        #: Called when nodes were published.
        self.on_nodes: Callable[[], None] | None = None
        #: Counts the jobs that have not started, for the limits of users.
        self.submission_limits = SubmissionLimits()
        self.strategy = ""
        self.strategy_options: Mapping[str, object] = {}
        #: How much the cluster has of each named resource.
        self.resources: Mapping[str, int] = {}

    # ---------------------------------------------------------------- publish

    def publish_summary(self, job: JobId, summary: Summary) -> None:
        """Set output file, folder and command line of a job, before the job itself is published."""
        with self._lock:
            self._summaries[job] = summary

    def publish_nodes(self, nodes: Iterable[Node], gone: Iterable[NodeName] = ()) -> None:
        """Publish the state of these nodes, and remove the nodes in ``gone``."""
        self._nodes.publish(nodes, gone)
        if self.on_nodes is not None:
            self.on_nodes()

    def publish_jobs(self, jobs: Iterable[Job]) -> list[JobId]:
        """Publish the state of these jobs; return the jobs that have just ended."""
        return self.publish(self.snapshot(jobs))

    def snapshot(self, jobs: Iterable[Job]) -> dict[JobId, JobEntry]:
        """Return the present state of some jobs, to be published after the commit."""
        return {job.id: self._entry(job) for job in jobs}

    def publish(self, snapshots: Mapping[JobId, JobEntry]) -> list[JobId]:
        """Publish snapshots of jobs; return the jobs that have just ended."""
        ended = []
        for job, entry in snapshots.items():
            with self._lock:
                before = self._jobs.get(job)
                self._jobs[job] = entry
                self._index.update(job, entry.info["user"], entry.info["state"])
                if "array" in entry.info:
                    self._arrays.add(job)
                if not entry.final:
                    self._open[job] = entry
                    user, state = entry.info["user"], entry.info["state"]
                    self.submission_limits.update(job, user, state, entry.jobs)
                    continue
                self.submission_limits.forget(job)
                self._open.pop(job, None)
                self._progress.pop(job, None)
                if before is None or not before.final:
                    heapq.heappush(self._ended, (entry.end or 0.0, job))
                    ended.append(job)
        if self.on_jobs is not None and snapshots:
            self.on_jobs(snapshots.keys())
        return ended

    def publish_progress(self, job: JobId, progress: Mapping[str, Any]) -> None:
        """Set the progress that an application last reported."""
        with self._lock:
            self._progress[job] = (progress, time.monotonic())

    def publish_usage(self, node: NodeName, idle: int, usage: Mapping[JobId, MemoryUse]) -> None:
        """Set the free memory of a node in bytes, and the memory that each job uses there."""
        with self._lock:
            self._idle_memory[node] = idle
            self._usage[node] = usage

    def publish_load(self, node: NodeName, load: NodeLoad, interval_s: float) -> None:
        """Set the memory load of a node, which it measures each ``interval_s`` seconds."""
        self._nodes.publish_load(node, load, interval_s)

    def publish_containment(self, node: NodeName, texts: Mapping[str, str]) -> None:
        """Set the texts that show how a node enforces limits on jobs; see `NodeStatusCache`."""
        self._nodes.publish_containment(node, texts)

    def publish_checkpoint_folder(self, node: NodeName, text: str) -> None:
        """Set the text that shows users whether a node shares the folder of checkpoints."""
        self._nodes.publish_checkpoint_folder(node, text)

    def drop_old(self, now: float) -> None:
        """Remove jobs that ended more than ``ENDED_JOBS_KEPT_S`` seconds ago."""
        with self._lock:
            while self._ended and self._ended[0][0] < now - ENDED_JOBS_KEPT_S:
                _, job = heapq.heappop(self._ended)
                self._jobs.pop(job, None)
                self._index.forget(job)
                self._arrays.forget(job)
                self._summaries.pop(job, None)

    # ---------------------------------------------------------------- read

    @property
    def processors(self) -> int:
        """Return the number of processors of all known nodes except spare ones."""
        return self._nodes.processors

    def node_views(self) -> list[NodeView]:
        """Return the nodes on which jobs could run, even if they accept no work at present."""
        return self._nodes.views()

    @property
    def nodes_up(self) -> int:
        """Return how many nodes accept new work at present."""
        return self._nodes.up

    @property
    def node_map(self) -> NodeMap:
        """Return the present map from processors to nodes; it is never changed, but replaced."""
        return self._nodes.map

    def host(self, name: NodeName) -> Host | None:
        """Return the properties of a node that never change; None if the node is unknown."""
        return self._nodes.host(name)

    def node_in_use(self, name: NodeName) -> bool:
        """Return whether any job holds processors of a node."""
        host = self.host(name)
        if host is None:
            return False
        mine = block(host.first, host.slots)
        with self._lock:
            return any(entry.held & mine for entry in self._open.values())

    def entry(self, job: JobId) -> JobEntry | None:
        """Return the cached values of a job or of a task that is no job yet; None if unknown."""
        return self._jobs.get(job) or self._pending_task(job)

    def is_pending_task(self, number: JobId) -> bool:
        """Return whether a number belongs to a task of an array that has not become a job."""
        return number not in self._jobs and self._pending_task(number) is not None

    def _pending_task(self, number: JobId) -> JobEntry | None:
        """Return the values of a task that has not become a job; None for any other number."""
        with self._lock:
            array = self._arrays.array_candidate(number)
            whole = self._jobs.get(array) if array is not None else None
        info = info_of_pending_task(whole.info, number) if whole is not None else None
        if whole is None or info is None:
            return None
        is_final = info["state"] in FINAL_STATES
        return JobEntry(info, whole.uid, 0, NONE, is_final, whole.end, {})

    def tasks_of(self, array: JobId) -> list[JobId]:
        """Return the job numbers of an array's tasks that are in the cache."""
        with self._lock:
            whole = self._jobs.get(array)
            numbers = tasks_of_array(whole.info) if whole is not None else None
            if numbers is None:
                return []
            if len(numbers) > len(self._jobs):
                return [job for job in self._jobs if job - array - 1 in numbers]
            found = (task_job(array, task) for task in numbers)
            return [number for number in found if number in self._jobs]

    def is_open(self, job: JobId, run: int) -> bool:
        """Return whether a run is the current run of a job that has not ended."""
        entry = self._jobs.get(job)
        return entry is not None and not entry.final and entry.run == run

    def progress(self, job: JobId) -> Mapping[str, Any] | None:
        """Return the progress that an application last reported; None if it has reported none.

        The seconds since the application's last safe point include the time since this report.
        """
        with self._lock:
            found = self._progress.get(job)
        if found is None:
            return None
        progress, at = found
        age = progress["safe_point_age_s"]
        since = time.monotonic() - at
        return {**progress, "safe_point_age_s": age + since if age >= 0 else age}

    def job(self, job: JobId) -> Info | None:
        """Return a job as users see it; None if it is not in the cache."""
        entry = self._jobs.get(job)
        if entry is None:
            return None
        return self.info(entry)

    def info(self, entry: JobEntry, fields: Collection[str] | None = None) -> Info:
        """Return a job as users see it, with its present progress and memory use.

        Args:
            entry: the cached values of the job.
            fields: the values that are needed; None for all.
        """
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
        """Return the open jobs and those that ended after ``ended_since``, sorted by number.

        If ``ended_since`` is None, return only the open jobs.

        No container is made for each job. Allocating 50,000 of them would trigger a full garbage
        collection, which stops all threads for 0.1 s.
        """
        with self._lock:
            known = self._open if ended_since is None else self._jobs
            entries = [known[job] for job in sorted(known)]
        if ended_since is None:
            return entries
        return [e for e in entries if not e.final or (e.end or 0) > ended_since]

    def job_counts(self) -> dict[str, int]:
        """Return the number of known jobs in each state."""
        with self._lock:
            return self._index.counts()

    def candidates(self, selection: JobSelection) -> list[JobEntry]:
        """Return all jobs that may match a selection, sorted by number.

        They are the jobs of the wanted users, or the jobs in the wanted states, whichever are
        fewer. So a short answer does not take longer because there are many other jobs.
        """
        with self._lock:
            known = self._open if selection.ended_since is None else self._jobs
            return [known[job] for job in self._index.candidates(selection, known)]

    def jobs(self, *, ended_since: float | None) -> list[Info]:
        """Return the jobs that `entries` returns, in the form that users see."""
        return [self.info(entry) for entry in self.entries(ended_since=ended_since)]

    def nodes(self) -> list[Info]:
        """Return a description of each node, as users see it."""
        with self._lock:
            idle = dict(self._idle_memory)
            holders = [(job, entry.held) for job, entry in self._open.items() if entry.held]
            helpers = set(self._root_helpers)
        rows = self._nodes.rows(holders, idle)
        return [{**row, "root_helper": row["name"] in helpers} for row in rows]

    def node_states(self) -> list[Info]:
        """Return all nodes with their properties and states, without their use by jobs."""
        hidden = ("used", "jobs", "idle_memory_bytes", "containment", "load")
        rows = self._nodes.rows((), {})
        return [{key: row[key] for key in row if key not in hidden} for row in rows]

    def live_values(self) -> dict[JobId, Info]:
        """Return progress and memory use of each job whose application has reported progress.

        The seconds since the last safe point are left out, because they always change.
        """
        with self._lock:
            known = [self._open[job] for job in self._progress if job in self._open]
        wanted = ("progress", "memory_bytes", "major_faults")
        infos = {JobId(entry.info["id"]): self.info(entry) for entry in known}
        found: dict[JobId, Info] = {}
        for job, info in infos.items():
            progress = dict(info["progress"] or {})
            progress.pop("safe_point_age_s", None)
            found[job] = {**{key: info[key] for key in wanted}, "progress": progress}
        return found

    def note_root_helper(self, node: NodeName, has_one: bool) -> None:
        """Record whether a registering node has a root helper, which starts jobs as their users."""
        with self._lock:
            if has_one:
                self._root_helpers.add(node)
            else:
                self._root_helpers.discard(node)

    def has_root_helper(self, node: NodeName) -> bool:
        """Return whether a node has a root helper, which starts each job as its user."""
        return node in self._root_helpers

    def resource_use(self) -> dict[str, dict[str, int]]:
        """Return total, used and free amount of each named resource (such as licenses), by name."""
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
        """Return a job that was read from the database, in the form that users see."""
        return {
            **_info(job, summary, self._nodes_of(job)),
            "progress": None,
            "memory_bytes": 0,
            "major_faults": 0,
        }

    def _nodes_of(self, job: Job) -> list[NodeName]:
        """Return the nodes on which a job runs or, if it has ended, ran last."""
        return self.node_map.names(job.allocation if job.final else job.occupied)

    def summary(self, job: Job) -> Summary:
        """Return output file, folder and command line of a job, which may be a task."""
        found = self._summaries.get(job.id)
        if found is None and job.spec.array and (whole := self._summaries.get(job.spec.array)):
            by_node = has_mark(whole.stdout, PLACE_MARKS)
            stdout = name_of_task(whole.stdout, job.spec.array, job.spec.task, by_node=by_node)
            found = self._summaries[job.id] = whole._replace(stdout=stdout)
        return found or Summary("", "", "")

    def _entry(self, job: Job) -> JobEntry:
        summary = self.summary(job)
        nodes = self._nodes_of(job)
        info = _info(job, summary, nodes)
        uses = named_resources.usage(job)
        jobs = len(job.progress.pending) if job.progress is not None else 1
        return JobEntry(info, job.spec.uid, job.run, job.occupied, job.final, job.end, uses, jobs)


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
        "procs": format_ranges(job.occupied),
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
        **({"account": job.spec.account} if job.spec.account else {}),
        **({"resources": list(map(str, job.spec.resources))} if job.spec.resources else {}),
        **({"node_needs": job.spec.node_needs.to_record()} if job.spec.node_needs else {}),
        **({"comment": job.spec.comment} if job.spec.comment else {}),
        **({"notify": job.spec.notify} if job.spec.notify else {}),
        **({"components": list(job.spec.components)} if job.spec.components else {}),
        **({"begin": job.spec.begin} if job.spec.begin is not None else {}),
        **({"warning": str(job.spec.warning)} if job.spec.warning else {}),
        **({"dependency": format_dependencies(job.dependencies)} if job.dependencies else {}),
        **_reservation(job),
        **array_fields(job),
        **_ends(job),
        **_contract(job),
    }


def _reservation(job: Job) -> dict[str, Any]:
    """Return the fields for processors reserved for a job: ``reserved`` and ``donors``.

    ``reserved`` is the number of processors. ``donors`` are the jobs that have to release them. The
    result is empty if no processors are reserved.
    """
    if not job.reserved:
        return {}
    return {"reserved": count(job.reserved), "donors": sorted(job.donors)}


def _ends(job: Job) -> dict[str, float]:
    """Return when a running job will probably end (``expected_end``) and must end (``limit_end``).

    An unknown time is left out; the result is empty for a job that does not run.
    """
    if job.start is None or job.final or job.progress is not None:
        return {}
    ends = {"expected_end": job.expected_end if job.size else None}
    if job.spec.time_limit_s is not None:
        ends["limit_end"] = job.start + job.spec.time_limit_s - job.used_s
    return {name: end for name, end in ends.items() if end is not None}


def _contract(job: Job) -> dict[str, Any]:
    """Return the fields for a job's contract (its deadline and profit) and its expected end.

    The result is empty for a job without a contract, so that such a job does not make the answer to
    `jobstat` longer.
    """
    contract = job.spec.contract
    if contract is None:
        return {}
    return {
        "deadline": contract.deadline(job.spec.arrival),
        "contract": contract.to_record(),
        "promise": job.promise.text if job.promise is not None else "",
        "promised_start": job.promise.start if job.promise is not None else None,
        "expected_end": profit_contract_status.expected_end(job),
    }
