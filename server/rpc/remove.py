"""The remove thread: ends of processes come in, books are closed.

A controller keeps the end of a rank until it is told that the end is durable here; so every report
is answered, a repeated one too, and none before its commit.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from pliant.core.events import ProcessesExited
from pliant.core.values.ids import JobId, NodeName
from pliant.protos import node_pb2
from pliant.server.database.statements import Write, add_exit, drop_fences
from pliant.server.database.writer import Writer
from pliant.server.execution.connections import Connections
from pliant.server.execution.execute import CoreLoop
from pliant.server.registry.status_cache import StatusCache
from pliant.server.registry.worlds import World, WorldRegistry
from pliant.server.rpc.report_validation import ReportValidator
from pliant.server.support.threads import start_thread

log = logging.getLogger(__name__)

#: Of no job: ends that concern none.
NO_RUN = -1


@dataclass(frozen=True, slots=True)
class EndReport:
    """What a node says of ranks of one world; ``ranks`` and ``times`` go with the exits."""

    node: NodeName
    world: str
    ranks: tuple[int, ...]
    times: tuple[float, ...]
    event: ProcessesExited


@dataclass(frozen=True, slots=True)
class _Committed:
    """A report whose consequences are committed, or could not be."""

    report: EndReport
    #: The ranks that were new in it.
    fresh: tuple[int, ...]
    #: Whether the books of its job or its world were closed: there is nothing left to be stored.
    is_closed: bool
    fault: BaseException | None


@dataclass(frozen=True, slots=True)
class _JobsEnded:
    jobs: Sequence[int]


class ExitCollector:
    """Takes end reports from the streams and ended jobs from the execute thread."""

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
        #: Ranks by world whose end is durable, of jobs whose books are open.
        self._seen: dict[JobId, dict[str, set[int]]] = {}
        #: The same of ends that are with the core.
        self._in_core: dict[JobId, dict[str, set[int]]] = {}
        #: Told about jobs whose books are closed, and worlds that have ended.
        self.on_closed: list[Callable[[Sequence[int], Sequence[World]], None]] = []
        self._thread: Any = None

    def restore(self, job: JobId, world: str, rank: int) -> None:
        """Know an end that was durable before a restart."""
        _ranks(self._seen, job, world).add(rank)

    def report(self, report: EndReport) -> None:
        """Take a report, from any thread."""
        self._queue.put(report)

    def on_jobs_ended(self, jobs: Sequence[int]) -> None:
        """Take jobs whose end is durable, from any thread."""
        self._queue.put(_JobsEnded(jobs))

    def start(self, on_fault: Callable[[str], None]) -> None:
        """Start the thread."""
        self._thread = start_thread("remove", self._run, on_fault)

    def stop(self) -> None:
        """Finish what is queued, then end."""
        self._queue.put(None)
        if self._thread:
            self._thread.join()

    def _run(self) -> None:
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
            # Its end is durable; or nobody here has begun it there: an older copy of the database
            # was put back. There is nothing new to be stored.
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
        """Return what the core must hear in any case: processors of this node are empty."""
        own = [
            e
            for e in report.event.exits
            if self._validator.owns_processor(report.node, e.processor)
        ]
        return replace(report.event, run=NO_RUN, exits=tuple(own))

    def _hand_over(
        self, report: EndReport, event: ProcessesExited, fresh: Sequence[int], *, is_closed: bool
    ) -> None:
        """Give the core what is new; a repeated report waits for what was handed over before."""
        ranks = tuple(report.ranks[i] for i in fresh)

        def durable(future: Future[Any]) -> None:
            self._queue.put(_Committed(report, ranks, is_closed, future.exception()))

        if event.exits:
            rows = [self._row(report, i) for i in fresh]
            self._core_loop.commit(event, rows).add_done_callback(durable)
        else:
            self._core_loop.call(lambda _: None).add_done_callback(durable)

    @staticmethod
    def _row(report: EndReport, place: int) -> Write:
        end = report.event.exits[place]
        return add_exit(
            report.world,
            report.ranks[place],
            (end.processor, end.code, end.signal, end.reason, report.times[place]),
        )

    def _acknowledge(self, item: _Committed) -> None:
        report, job = item.report, item.report.event.job
        if item.fresh and job in self._in_core:
            _ranks(self._in_core, job, report.world).difference_update(item.fresh)
        if item.fault is not None:
            # The node will report again, and then it is new again.
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
        """Forget a world whose last end is durable while its job goes on."""
        world = self._worlds.get(name)
        if world is None or not self._status.is_open(job, run):
            return
        if len(_ranks(self._seen, job, name)) == len(world.processors):
            self._worlds.drop(world)
            for known in (self._seen, self._in_core):
                known.get(job, {}).pop(name, None)
            self._finish_worlds((), [world])

    def _forget_jobs(self, jobs: Sequence[int]) -> None:
        """Forget tokens, sessions, worlds and barriers of jobs; release who waits for them."""
        worlds: list[World] = []
        for number in jobs:
            job = JobId(number)
            self._connections.close_job(job)
            worlds += self._worlds.forget(job)
            self._seen.pop(job, None)
            self._in_core.pop(job, None)
        self._finish_worlds(jobs, worlds)

    def _finish_worlds(self, jobs: Sequence[int], worlds: Sequence[World]) -> None:
        """Barriers of these worlds will not be asked for again; tell who else should know."""
        if rows := drop_fences(worlds):
            self._writer.commit(rows)
        for tell in self.on_closed:
            tell(jobs, worlds)


def _ranks(known: dict[JobId, dict[str, set[int]]], job: JobId, world: str) -> set[int]:
    return known.setdefault(job, {}).setdefault(world, set())
