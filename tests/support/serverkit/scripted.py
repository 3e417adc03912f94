"""A server in one thread, with a clock that the test sets and streams that the test reads.

All parts are those of the server: core loop, planner, submissions, dispatcher, collector of exits,
the two services, the tables in memory and the database. Instead of gRPC there are lists that
collect the messages of the streams. Instead of threads there are turns: each turn handles
everything that has arrived, as the threads do before they end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pliant.core.commands import RunStrategy
from pliant.core.events import NodeRegistered, PlanFailed, PlanReady
from pliant.core.model.views_and_plans import Plan
from pliant.core.state_machine import Core
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.timeouts import Timeouts
from pliant.protos import app_pb2, node_pb2
from pliant.server.authentication.app_tokens import AppTokens
from pliant.server.authorisation.access_control import AccessControl
from pliant.server.authorisation.roles import Members, Roles
from pliant.server.authorisation.submitters import SubmissionRules, Submitters
from pliant.server.database.compare_and_set import RowVersions
from pliant.server.database.engine import open_database, open_reader
from pliant.server.database.reader import Reader
from pliant.server.database.writer import Writer
from pliant.server.execution import core_loop
from pliant.server.execution.command_execution import CommandDispatcher
from pliant.server.execution.connections import AppSession, Connections, Stream
from pliant.server.execution.core_loop import CoreLoop
from pliant.server.execution.job_program_cache import ProgramCache
from pliant.server.execution.planner import Planner
from pliant.server.execution.start_orders import LaunchSettings
from pliant.server.execution.strategy_choice import StrategyChoice
from pliant.server.registry.job_ids import JobIdAllocator
from pliant.server.registry.mpi_worlds import WorldRegistry
from pliant.server.registry.status_cache import StatusCache
from pliant.server.rpc.app_service import AppService
from pliant.server.rpc.exit_collector import ExitCollector
from pliant.server.rpc.lost_message_detection import LostMessageDetector
from pliant.server.rpc.node_authentication import SecretAuthenticator
from pliant.server.rpc.node_service import NodeService, ServerIdentity
from pliant.server.rpc.report_validation import ReportValidator
from pliant.server.staging.staged_files import StagedFiles
from pliant.server.support.clock import HybridClock
from pliant.server.support.measurements import Measurements
from pliant.server.user_requests.audit_records import RequestRecords
from pliant.server.user_requests.changing_requests import Commands
from pliant.server.user_requests.job_lookup import JobLookup
from pliant.server.user_requests.metrics_query import MetricsQuery
from pliant.server.user_requests.operation_table import Operations
from pliant.server.user_requests.reading_requests import ServerInfo, StateQueries, UsageQueries
from pliant.server.user_requests.staging_requests import StagingRequests
from pliant.server.user_requests.step_resizes import StepResizes
from pliant.server.user_requests.submission.submissions import Submissions
from pliant.server.user_requests.subscriptions import Subscriptions
from pliant.server.watch.change_feed import ChangeFeed
from pliant.server.watch.streams import Streams


class Clock(HybridClock):
    """A clock that shows the time that the test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def now(self) -> float:
        """Return the time that was set."""
        return self.time


class Channel:
    """The sending half of a stream, which records messages with their receiver."""

    def __init__(self, outbox: list[tuple[Any, Any]], to: Any) -> None:
        self._outbox, self._to = outbox, to

    def send(self, message: Any) -> None:
        """Record a message."""
        self._outbox.append((self._to, message))

    def close(self) -> None:
        """Do nothing."""


class RecordingPlanner(Planner):
    """Records each plan with its time. A fault of the strategy fails the test."""

    def __init__(self, name: str, options: Mapping[str, object] | None = None) -> None:
        super().__init__(name, options, deadline_s=1000.0)
        self.plans: list[tuple[float, Plan]] = []

    def run(self, order: RunStrategy) -> PlanReady | PlanFailed:
        """Ask for a plan and record it."""
        result = super().run(order)
        assert isinstance(result, PlanReady), result
        self.plans.append((order.view.now, result.plan))
        return result


class NoQueries:
    """Answers every availability query in the same way, instead of the query thread."""

    async def answer(self, *_: object, **__: object) -> dict[str, Any]:
        """Return an empty answer."""
        return {}


class Shell:
    """The server's parts, wired as `Server` wires them."""

    def __init__(
        self,
        base: Path,
        strategy: str,
        limits: Timeouts,
        *,
        patient: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> None:
        self.patient = patient
        #: Whether a plan was made in the last turn.
        self.busy = False
        self.clock, self.status, self.connections, self.worlds = (
            Clock(),
            StatusCache(),
            Connections(),
            WorldRegistry("test"),
        )
        self.outbox: list[tuple[Any, Any]] = []
        self._engine = open_database(base / "pliant.db")
        self.reader = Reader(open_reader(base / "pliant.db"))
        self.measurements = Measurements()
        self._writer = Writer(self._engine, measurements=self.measurements)
        self._writer.start(self._broke)
        self.core = Core(strategy, limits)
        self.planner = RecordingPlanner(strategy, options)
        self.tokens, programs = AppTokens(b"a key"), ProgramCache(self.reader)
        settings = LaunchSettings("nowhere", "/nowhere", limits.kill_grace_s)
        effects = CommandDispatcher(
            self.connections, self.worlds, self.status, programs, self.tokens, settings
        )
        self.execute = CoreLoop(
            self.core,
            self.planner,
            self._writer,
            self.clock,
            effects,
            self.status,
            row_versions=RowVersions(),
            on_jobs_ended=self._collect_ended_jobs,
        )
        validator = ReportValidator(self.worlds, self.status)
        self.remove = ExitCollector(
            self.execute, self.connections, self.worlds, self.status, self._writer, validator
        )
        self._submissions = Submissions(
            self.execute,
            self.status,
            self._writer,
            self.reader,
            programs,
            self.clock,
            JobIdAllocator(0),
        )
        self.staging = self._submissions.staging = StagedFiles(base, 1 << 20, os.getuid())
        unused = cast(Any, None)  # heartbeats and barriers are not sent here
        greeting = ServerIdentity(1, "", 1.0, SecretAuthenticator(""))
        self.nodes = NodeService(
            self.execute, self.connections, unused, self.remove, unused, validator, greeting
        )
        self.apps = AppService(
            self.execute, self.connections, self.status, self.tokens, self.clock, generation=1
        )
        self.execute.stop()  # from now on its loop ends when it has handled what arrived

    def _collect_ended_jobs(self, jobs: Sequence[int]) -> None:
        self.remove.on_jobs_ended(jobs)

    @staticmethod
    def _broke(thread: str) -> None:
        raise AssertionError(f"thread {thread} broke")

    def close(self) -> None:
        """Release the database."""
        self._writer.stop()
        self.staging.close()
        self.reader.close()
        self._engine.dispose()

    # ---------------------------------------------------------------- turns

    def turn(self) -> list[tuple[Any, Any]]:
        """Handle everything that has arrived; return the messages that were sent.

        A patient shell plans in a turn of its own, when no message is waiting.
        """
        before = len(self.planner.plans)
        if not self.patient:
            self.rounds(core_loop.MAX_PLANS_PER_ROUND)
        else:
            self.rounds(0)
            if not self.outbox:
                self.rounds(1)
        self.core.check_invariants()
        self.busy = len(self.planner.plans) > before
        sent, self.outbox[:] = list(self.outbox), []
        return sent

    def rounds(self, plans: int) -> None:
        """Run rounds of the execute thread until only plans beyond ``plans`` are left to do."""
        usual, core_loop.MAX_PLANS_PER_ROUND = core_loop.MAX_PLANS_PER_ROUND, plans
        try:
            while True:
                self.ends()
                entries = self.execute._gather()
                if entries is None:
                    return
                result = self.execute._new_result()
                self.execute._handle(entries, result)
                self.execute._finish(result, entries)
                if plans < usual and not self.execute._inbox and self.remove._queue.empty():
                    return
        finally:
            core_loop.MAX_PLANS_PER_ROUND = usual

    def ends(self) -> None:
        """Pass the exits that nodes reported to the core loop."""
        self.remove.stop()  # its loop ends here and is entered again in the next turn
        self.remove.run()

    def next_timer(self) -> float | None:
        """Return the time of the next timer, None if none is set."""
        return self.execute._timers.next_time()

    # ---------------------------------------------------------------- peers

    def register(self, nodes: Iterable[NodeRegistered]) -> None:
        """Register nodes, whose messages are recorded from now on."""
        for node in nodes:
            channel = cast(Stream[node_pb2.NodeOrder], Channel(self.outbox, node.name))
            self.connections.attach_node(node.name, channel)
            self.execute.post(node)
        self.turn()

    def submit(self, **request: Any) -> int:
        """Submit a job as the users' socket does."""
        raw = {"argv": ["true"], "cwd": "/tmp", **request}
        return asyncio.run(self._submissions.submit(raw, "ann", 1000))

    def actions(
        self,
        *,
        operators: Iterable[int] = (),
        own_uid: int = 999,
        rules: SubmissionRules | None = None,
        status: StatusCache | None = None,
        core_loop: Any = None,
    ) -> Operations:
        """Return the operations of users, for a server that runs as the user ``own_uid``.

        Tests may put another status cache or core loop in the place of the real one.
        """
        status = status or self.status
        access = AccessControl(own_uid, Roles(Members(frozenset(operators))))
        identity = ServerInfo(pid=1, generation=1, started=0.0, address="", version="")
        jobs = JobLookup(status, self.reader, access)
        queries = StateQueries(
            self.execute,
            status,
            self.reader,
            self.clock,
            self.connections,
            jobs,
            identity,
        )
        configured = StrategyChoice("fcfs", {})
        changing = Commands(
            core_loop or self.execute,
            status,
            self.connections,
            jobs,
            access,
            configured,
            StepResizes(self.worlds, status, self.connections),
        )
        return Operations(
            self._submissions,
            Submitters(rules or SubmissionRules(), access, status),
            cast(Any, NoQueries()),
            queries,
            changing,
            UsageQueries(self.execute, self.reader, self.clock, jobs),
            Subscriptions(
                Streams(
                    ChangeFeed(status, self.reader, self.connections),
                    status,
                    self.reader,
                    self.clock,
                    access,
                    generation=1,
                ),
                jobs,
            ),
            clock=self.clock,
            identity=identity,
            access=access,
            refusals=RequestRecords(self._writer, self.clock),
            stop=lambda: None,
            measurements=self.measurements,
            metrics=MetricsQuery(self.measurements, status, self.connections, self.clock, identity),
            staging=StagingRequests(self.staging, jobs, self.reader),
        )

    def session(self, job: int, run: int) -> AppSession:
        """Return a session of an application."""
        channel = cast(Stream[app_pb2.AppOrder], Channel(self.outbox, job))
        return AppSession(JobId(job), run, channel, "nowhere:1")

    def hear_node(self, node: str, **report: Any) -> None:
        """Handle a report of a node."""
        self.nodes.handle_report(
            NodeName(node), node_pb2.NodeReport(**report), LostMessageDetector()
        )

    def hear_app(self, session: AppSession, **report: Any) -> None:
        """Handle a report of an application. The first one must be its Hello."""
        self.apps.handle_report(session, app_pb2.AppReport(**report))


__all__ = ["Channel", "Clock", "RecordingPlanner", "Shell"]
