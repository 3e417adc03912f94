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
from pliant.core.ids import JobId, NodeName
from pliant.protos import node_pb2
from pliant.server.board import Board
from pliant.server.database.changes import Change, add_exit, drop_fences
from pliant.server.database.writer import Writer
from pliant.server.execute import Execute
from pliant.server.streams import Hub
from pliant.server.threads import start_thread
from pliant.server.worlds import World, WorldBook

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EndReport:
    """What a node says of ranks of one world; ``ranks`` and ``times`` go with the exits."""

    node: NodeName
    world: str
    ranks: tuple[int, ...]
    times: tuple[float, ...]
    event: ProcessesExited


@dataclass(frozen=True, slots=True)
class _Durable:
    """A report whose consequences are committed, or could not be."""

    report: EndReport
    fault: BaseException | None


@dataclass(frozen=True, slots=True)
class _Ended:
    jobs: Sequence[int]


class Remove:
    """Takes end reports from the streams and ended jobs from the execute thread."""

    def __init__(
        self, execute: Execute, hub: Hub, book: WorldBook, board: Board, writer: Writer
    ) -> None:
        self._execute, self._hub, self._book = execute, hub, book
        self._board, self._writer = board, writer
        self._queue: queue.SimpleQueue[EndReport | _Durable | _Ended | None] = queue.SimpleQueue()
        #: Ends that are with the core or durable, of jobs whose books are open.
        self._seen: dict[JobId, set[tuple[str, int]]] = {}
        #: Told about jobs whose books are closed.
        self.on_closed: list[Callable[[Sequence[int], Sequence[World]], None]] = []
        self._thread: Any = None

    def restore(self, job: JobId, ends: set[tuple[str, int]]) -> None:
        """Know ends that were durable before a restart."""
        self._seen.setdefault(job, set()).update(ends)

    def report(self, report: EndReport) -> None:
        """Take a report, from any thread."""
        self._queue.put(report)

    def ended(self, jobs: Sequence[int]) -> None:
        """Take jobs whose end is durable, from any thread."""
        self._queue.put(_Ended(jobs))

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
                    self._take(item)
                case _Durable():
                    self._acknowledge(item)
                case _Ended():
                    self._close(item.jobs)

    def _take(self, report: EndReport) -> None:
        job, run = report.event.job, report.event.run
        if not self._board.alive(job, run):
            # The core must still hear that the processors are empty; nothing new is to be stored.
            self._hand_over(report, report.event, [])
            return
        seen = self._seen.setdefault(job, set())
        fresh = [i for i, rank in enumerate(report.ranks) if (report.world, rank) not in seen]
        seen.update((report.world, report.ranks[i]) for i in fresh)
        event = replace(report.event, exits=tuple(report.event.exits[i] for i in fresh))
        self._hand_over(report, event, [self._row(report, i) for i in fresh])

    def _hand_over(self, report: EndReport, event: ProcessesExited, rows: list[Change]) -> None:
        """Give the core what is new; a repeated report waits for what was handed over before."""

        def durable(future: Future[Any]) -> None:
            self._queue.put(_Durable(report, future.exception()))

        if event.exits:
            self._execute.commit(event, rows).add_done_callback(durable)
        else:
            self._execute.call(lambda _: None).add_done_callback(durable)

    @staticmethod
    def _row(report: EndReport, place: int) -> Change:
        end = report.event.exits[place]
        return add_exit(
            report.world,
            report.ranks[place],
            (end.processor, end.code, end.signal, end.reason, report.times[place]),
        )

    def _acknowledge(self, item: _Durable) -> None:
        report = item.report
        if item.fault is not None:
            log.error("the end of ranks of %s is not acknowledged: %s", report.world, item.fault)
            return
        ack = node_pb2.ExitAck(world=report.world, ranks=report.ranks)
        self._hub.order(report.node, node_pb2.NodeOrder(exit_ack=ack))

    def _close(self, jobs: Sequence[int]) -> None:
        """Forget tokens, sessions, worlds and barriers of jobs; release who waits for them."""
        worlds: list[World] = []
        for number in jobs:
            job = JobId(number)
            self._hub.close_job(job)
            worlds += self._book.forget(job)
            self._seen.pop(job, None)
        if rows := drop_fences(worlds):
            self._writer.commit(rows)
        for tell in self.on_closed:
            tell(jobs, worlds)
