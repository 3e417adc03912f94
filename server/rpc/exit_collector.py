"""The remove thread: collects exits of processes, and cleans up after worlds and jobs.

A controller keeps the exit of a rank until the server acknowledges that the exit is durable. So
every report is acknowledged, even a repeated one, and never before its commit.

One exit passes through this thread up to three times, because the core and the commit belong to
other threads:

1. `EndReport` from a stream: exits that are new go to the core, with a row for the database.
2. `_Committed` from the execute thread: the controller gets its acknowledgement. If it was the last
   rank of a world, the world is dropped.
3. `_JobsEnded` from the execute thread, if the exit ended its job: everything about the job is
   dropped, and the parts in ``on_closed`` are told.

All three are messages in one queue, so this thread alone changes the sets of known exits.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from pliant.core.events import ProcessesExited
from pliant.core.values.ids import JobId, NodeName
from pliant.protos import node_pb2
from pliant.server.database.statements import (
    StepOfScript,
    Write,
    add_exit,
    add_step,
    drop_barriers,
)
from pliant.server.database.writer import Writer
from pliant.server.execution.connections import Connections
from pliant.server.execution.core_loop import CoreLoop
from pliant.server.registry.mpi_worlds import World, WorldRegistry
from pliant.server.registry.status_cache import StatusCache
from pliant.server.rpc.report_validation import ReportValidator
from pliant.server.support.threads import start_thread

log = logging.getLogger(__name__)

#: Run number in events about exits that belong to no open run.
NO_RUN = -1


@dataclass(frozen=True, slots=True)
class EndReport:
    """A node's report that ranks of one world (ranks started together) have exited.

    The items at the same position of ``ranks``, of ``times`` and of the event's exits are about
    the same rank.
    """

    node: NodeName
    world: str
    ranks: tuple[int, ...]
    times: tuple[float, ...]
    event: ProcessesExited
    #: The steps of scripts that have ended, by the rank of the script.
    steps: Mapping[int, Sequence[StepOfScript]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Committed:
    """A node's report after the core has handled it, and the error if its exits were not stored."""

    report: EndReport
    #: The ranks whose exits were new.
    fresh: tuple[int, ...]
    #: Whether the job or the world had already ended, so that nothing was stored.
    is_closed: bool
    fault: BaseException | None


@dataclass(frozen=True, slots=True)
class _JobsEnded:
    jobs: Sequence[int]


class ExitCollector:
    """Stores exits of processes, and drops what belongs to worlds and jobs that have ended.

    Nodes and applications report exits on their streams, and the execute thread reports jobs that
    have ended.
    """

    def __init__(
        self,
        core_loop: CoreLoop,
        connections: Connections,
        worlds: WorldRegistry,
        status: StatusCache,
        writer: Writer,
        validator: ReportValidator,
    ) -> None:
        self._core_loop, self._connections, self._worlds = core_loop, connections, worlds
        self._status, self._writer, self._validator = status, writer, validator
        self._queue: queue.SimpleQueue[EndReport | _Committed | _JobsEnded | None] = (
            queue.SimpleQueue()
        )
        #: Ranks by job and world whose exit is durable, of open jobs.
        self._seen: dict[JobId, dict[str, set[int]]] = {}
        #: The same for exits that were passed to the core and are not durable yet.
        self._in_core: dict[JobId, dict[str, set[int]]] = {}
        #: Called with jobs and worlds that have ended.
        self.on_closed: list[Callable[[Sequence[int], Sequence[World]], None]] = []
        self._thread: Any = None

    def restore(self, job: JobId, world: str, rank: int) -> None:
        """Record an exit that was stored before the server restarted.

        If a node reports this exit again, it is not handled as a new one.
        """
        _ranks(self._seen, job, world).add(rank)

    def report(self, report: EndReport) -> None:
        """Queue a node's report of exits. May be called from any thread."""
        self._queue.put(report)

    def on_jobs_ended(self, jobs: Sequence[int]) -> None:
        """Queue ended jobs, so that the collector's thread drops what it stores about these jobs.

        Called from the execute thread when the end of the jobs is durable.
        """
        self._queue.put(_JobsEnded(jobs))

    def start(self, on_fault: Callable[[str], None]) -> None:
        """Start the thread; ``on_fault`` is called with its name if an error ends the thread."""
        self._thread = start_thread("remove", self.run, on_fault)

    def stop(self) -> None:
        """Handle all queued reports, then end the thread."""
        self._queue.put(None)
        if self._thread:
            self._thread.join()

    def run(self) -> None:
        """Handle queued reports until `stop` is called. `start` calls this in a thread."""
        while (item := self._queue.get()) is not None:
            match item:
                case EndReport():
                    self._handle_report(item)
                case _Committed():
                    self._acknowledge(item)
                case _JobsEnded():
                    self._forget_jobs(item.jobs)

    def _handle_report(self, report: EndReport) -> None:
        job = report.event.job
        world = self._worlds.get(report.world)
        known_there = world is not None and report.node in world.nodes
        if not (known_there and self._status.is_open(job, report.event.run)):
            # The job has ended and its end is durable. Or this server never started the world on
            # that node, because an older copy of the database was restored. Nothing is stored.
            self._hand_over(report, self.processors_emptied(report), (), is_closed=True)
            return
        seen = _ranks(self._seen, job, report.world)
        in_core = _ranks(self._in_core, job, report.world)
        known = seen | in_core
        fresh = [i for i, rank in enumerate(report.ranks) if rank not in known]
        in_core.update(report.ranks[i] for i in fresh)
        event = replace(report.event, exits=tuple(report.event.exits[i] for i in fresh))
        self._hand_over(report, event, fresh, is_closed=False)

    def processors_emptied(self, report: EndReport) -> ProcessesExited:
        """Return the event for a report about a run that has ended or is unknown here.

        The event belongs to no run, so it changes no job. It only informs the core that no
        processes are left on these processors.
        """
        own = [
            e
            for e in report.event.exits
            if self._validator.owns_processor(report.node, e.processor)
        ]
        return replace(report.event, run=NO_RUN, exits=tuple(own))

    def _hand_over(
        self, report: EndReport, event: ProcessesExited, fresh: Sequence[int], *, is_closed: bool
    ) -> None:
        """Pass new exits to the core. When they are durable, `_Committed` is put into the queue.

        If the report has no new exits, its exits may be in earlier events that are not durable yet.
        So the report waits until these events have been handled.

        Args:
            report: the report as it arrived.
            event: the event for the core, with the new exits.
            fresh: the positions of the new exits in the report.
            is_closed: whether the run of the world has ended or is unknown here.
        """
        ranks = tuple(report.ranks[i] for i in fresh)

        def durable(future: Future[Any]) -> None:
            self._queue.put(_Committed(report, ranks, is_closed, future.exception()))

        if event.exits:
            rows = [row for i in fresh for row in self._rows(report, i)]
            self._core_loop.commit(event, rows).add_done_callback(durable)
        else:
            self._core_loop.call(lambda _: None).add_done_callback(durable)

    @staticmethod
    def _rows(report: EndReport, place: int) -> list[Write]:
        end, rank = report.event.exits[place], report.ranks[place]
        values = (end.processor, end.code, end.signal, end.reason, report.times[place])
        steps = report.steps.get(rank, ())
        return [
            add_exit(report.world, rank, values),
            *(add_step(report.world, step) for step in steps),
        ]

    def _acknowledge(self, item: _Committed) -> None:
        report, job = item.report, item.report.event.job
        if item.fresh and job in self._in_core:
            _ranks(self._in_core, job, report.world).difference_update(item.fresh)
        if item.fault is not None:
            # The node will report the exit again, and then it counts as new.
            log.error("the end of ranks of %s is not acknowledged: %s", report.world, item.fault)
            return
        ranks: Sequence[int] = report.ranks
        if not item.is_closed and job in self._seen and self._worlds.get(report.world) is not None:
            seen = _ranks(self._seen, job, report.world)
            seen.update(item.fresh)
            ranks = [rank for rank in ranks if rank in seen]
        if ranks:
            ack = node_pb2.ExitAck(world=report.world, ranks=ranks)
            self._connections.send_to_node(report.node, node_pb2.NodeOrder(exit_ack=ack))
        self._prune(job, report.event.run, report.world)

    def _prune(self, job: JobId, run: int, name: str) -> None:
        """Drop a world (ranks started together) of a running job if all its ranks have exited.

        The exits must be durable. Nothing happens if a rank is left.

        Args:
            job: the job of the world.
            run: its run.
            name: the name of the world.
        """
        world = self._worlds.get(name)
        if world is None or not self._status.is_open(job, run):
            return
        if len(_ranks(self._seen, job, name)) == len(world.processors):
            self._worlds.drop(world)
            for known in (self._seen, self._in_core):
                known.get(job, {}).pop(name, None)
            self._finish_worlds((), [world])

    def _forget_jobs(self, jobs: Sequence[int]) -> None:
        """Drop sessions, worlds and exits of ended jobs; call the functions in ``on_closed``."""
        worlds: list[World] = []
        for number in jobs:
            job = JobId(number)
            self._connections.close_job(job)
            worlds += self._worlds.forget(job)
            self._seen.pop(job, None)
            self._in_core.pop(job, None)
        self._finish_worlds(jobs, worlds)

    def _finish_worlds(self, jobs: Sequence[int], worlds: Sequence[World]) -> None:
        """Delete the barriers of ended worlds, and call the functions in ``on_closed``.

        Args:
            jobs: the jobs that have ended; empty if their other ranks still run.
            worlds: the worlds (ranks started together) that have ended.
        """
        if rows := drop_barriers(worlds):
            self._writer.commit(rows)
        for tell in self.on_closed:
            tell(jobs, worlds)


def _ranks(known: dict[JobId, dict[str, set[int]]], job: JobId, world: str) -> set[int]:
    return known.setdefault(job, {}).setdefault(world, set())
