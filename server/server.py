"""The running server: builds all parts, starts them in order and stops them in reverse."""

from __future__ import annotations

import json
import logging
import os
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from pliant import __version__
from pliant.core.commands import Command, Note
from pliant.core.events import SettingsChanged
from pliant.core.state.accounting import Accounting
from pliant.core.state_machine import Core
from pliant.core.values.ids import JobId
from pliant.core.values.processors import from_indices
from pliant.protos.daemons.atomic_files import write_whole
from pliant.protos.daemons.service_manager import ServiceManager
from pliant.server.authentication.app_tokens import AppTokens
from pliant.server.authentication.cluster_secret import FILE_NAME, load_secret
from pliant.server.authorisation.access_control import AccessControl
from pliant.server.authorisation.roles import RolesFileError
from pliant.server.authorisation.submitters import SubmissionRules, Submitters
from pliant.server.checkpoints.checkpoint_folders import CheckpointFolders
from pliant.server.checkpoints.shared_folder_probe import SharedFolderProbe
from pliant.server.config import Config
from pliant.server.database.compare_and_set import RowVersions
from pliant.server.database.engine import check_values, checkpoint, open_database, open_reader
from pliant.server.database.generation import FILE_NAME as GENERATION_FILE
from pliant.server.database.generation import next_generation, write_last_generation
from pliant.server.database.meta_keys import LAST_JOB_ID, NEXT_RESIZE, RUNS_FROM, parse_two_ids
from pliant.server.database.reader import Reader
from pliant.server.database.replaced_database_check import FILE_NAME as COMMITS_FILE
from pliant.server.database.replaced_database_check import CommitGuard, read_last_seen
from pliant.server.database.statements import add_note, put_meta
from pliant.server.database.stored_state import read_state
from pliant.server.database.writer import Writer, apply_writes
from pliant.server.execution.command_execution import CommandDispatcher
from pliant.server.execution.connections import Connections
from pliant.server.execution.core_loop import CoreLoop
from pliant.server.execution.job_program_cache import ProgramCache
from pliant.server.execution.planner import Planner
from pliant.server.execution.start_orders import LaunchSettings
from pliant.server.execution.strategy_choice import StrategyChoice, strategy_in_force
from pliant.server.folder_locks import boot_id
from pliant.server.listeners import ServiceParts, Services
from pliant.server.notifications.notifier import Notifier
from pliant.server.registry.job_ids import JobIdAllocator
from pliant.server.registry.mpi_worlds import World, WorldRegistry
from pliant.server.registry.status_cache import ENDED_JOBS_KEPT_S, StatusCache
from pliant.server.rpc.checkpoint_removals import CheckpointRemovals
from pliant.server.rpc.exit_collector import ExitCollector
from pliant.server.rpc.grpc_server import GrpcServer
from pliant.server.rpc.node_list import NodeList
from pliant.server.rpc.pmi_barriers import BarrierService, BarrierTable
from pliant.server.rpc.report_validation import ReportValidator
from pliant.server.rpc.staging.staging_service import StagingService
from pliant.server.staging.staged_files import StagedFiles
from pliant.server.support.clock import CLOCK_KEY, resume_clock
from pliant.server.support.measurements import Measurements
from pliant.server.support.rate_limit import RateLimiter
from pliant.server.user_requests.audit_records import RequestRecords
from pliant.server.user_requests.availability_queries import AvailabilityQueries
from pliant.server.user_requests.changing_requests import Commands
from pliant.server.user_requests.connections.user_socket_server import UserSocketServer
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

if TYPE_CHECKING:  # a server for one host needs no certificates, which take long to import
    from pliant.server.execution.launch_signing import OrderSigner

log = logging.getLogger(__name__)


class Server:
    """The server: creates, connects, starts and stops all its parts.

    Args:
        config: the config of the server.
        stop: is called when a user asks the server to stop.
        on_fault: is called with the name of a thread that ended unexpectedly.
        manager: the service manager, which is notified that the execute thread is alive.
    """

    def __init__(
        self,
        config: Config,
        stop: Callable[[], None],
        on_fault: Callable[[str], None],
        manager: ServiceManager,
    ) -> None:
        self._manager = manager
        self._config, self._stop_server, self._on_fault = config, stop, on_fault
        path = config.state / "pliant.db"
        self._engine: Engine = open_database(
            path,
            locked_s=config.database_timeout_s,
            known=(config.state / FILE_NAME).exists(),
        )
        self._reader = Reader(open_reader(path))
        meta = self._reader.meta()
        check_values(path, meta)
        self._clock = resume_clock(meta, boot_id(), self._reader.last_event_time())
        self._meta_before = meta
        self._meta = self._new_generation(meta)
        self._generation = int(self._meta["generation"])
        given = int(self._meta.get(LAST_JOB_ID, "0"))
        self._job_ids = JobIdAllocator(self._reader.last_job_id(), given)
        self._stored = read_state(self._reader, self._clock.now() - ENDED_JOBS_KEPT_S)
        #: Where applications connect; empty until the server listens.
        self.address = ""
        #: Where nodes and applications connect over TLS, by name; empty without TLS.
        self.tls_addresses: Mapping[str, str] = {}
        self._services: Services | None = None
        self._guard = CommitGuard(path, self._generation, self._job_ids.last)
        self._measurements = Measurements()
        self._writer = Writer(self._engine, self._guard, self._measurements)
        self._secret = load_secret(config.state / FILE_NAME)
        self._accept: UserSocketServer | None = None
        self._access = AccessControl(os.geteuid(), config.read_roles())
        self._build(config)

    def _load_signer(self) -> OrderSigner | None:
        """Return the signer of orders to nodes; None if the cluster has no identity."""
        directory = self._config.identity
        if not directory.exists():
            return None
        from pliant.server.execution.launch_signing import load_signer

        return load_signer(directory, self._generation)

    def _build(self, config: Config) -> None:
        """Create all parts that need the database, each after the parts that it uses."""
        self._status, self._connections, self._rpc = StatusCache(), Connections(), GrpcServer()
        self._tokens = AppTokens(bytes.fromhex(self._meta["key"]))
        short = self._meta["cluster"].replace("-", "")[:8]
        self._worlds = WorldRegistry(short)
        self._step_resizes = StepResizes(self._worlds, self._status, self._connections)
        self._checkpoint_folders = CheckpointFolders(
            config.checkpoint_folder, short, self._tokens.checkpoint_name
        )
        self._shared_folder = SharedFolderProbe(config.checkpoint_folder, short)
        self._staging = StagedFiles(config.state, config.staging_limit, os.geteuid())
        self._programs = ProgramCache(self._reader)
        self._configured = StrategyChoice(config.strategy, config.strategy_options)
        chosen = strategy_in_force(self._meta_before, self._configured)
        self._core = Core(
            chosen.name,
            config.limits(),
            policy=config.negotiation,
            resources=config.resources,
            accounting=Accounting(config.shares()),
            user_limits=config.limits_of_users(),
        )
        self._status.resources = config.resources
        signer = self._load_signer()
        self._removals = CheckpointRemovals(
            self._connections, signer, self._uid_of, self._remove_old_checkpoints
        )
        if signer is not None:
            self._checkpoint_folders.on_foreign = self._removals.add
        self._dispatcher = CommandDispatcher(
            self._connections,
            self._worlds,
            self._status,
            self._programs,
            self._tokens,
            self._launch_settings(),
            signer,
        )
        self._planner = Planner(
            chosen.name, chosen.options, config.strategy_deadline_s, self._measurements
        )
        self._core_loop = CoreLoop(
            self._core,
            self._planner,
            self._writer,
            self._clock,
            self._dispatcher,
            self._status,
            row_versions=RowVersions(job for job, _ in self._stored.open_jobs),
            on_jobs_ended=self._collect_ended_jobs,
            manager=self._manager,
            debug=config.debug,
        )
        self._validator = ReportValidator(self._worlds, self._status)
        self._remove = ExitCollector(
            self._core_loop,
            self._connections,
            self._worlds,
            self._status,
            self._writer,
            self._validator,
        )
        self._nodelist = NodeList(
            self._core_loop, self._connections, self._status, config.beat_interval_s, config.lease_s
        )
        self._submissions = self._make_submissions(config)
        rules = self._submissions.notify_rules
        self._notifier = Notifier(config.state, rules, self._reader, self._status, short)
        self._availability = AvailabilityQueries(
            self._core_loop,
            self._submissions,
            self._planner,
            self._clock,
            config.strategy_deadline_s,
        )
        self._rate_limiter = RateLimiter(config.session_rate, config.session_burst)
        self._barriers = BarrierService(
            self._connections, self._worlds, BarrierTable(self._stored.barriers), self._writer
        )

    # ---------------------------------------------------------------- start

    def start(self) -> None:
        """Restore the stored state, start all threads, and publish the server's address."""
        commands = self._take_over()
        self._writer.start(self._on_fault)
        self.address = self._listen()
        self._dispatcher.settings = self._launch_settings()  # now with the address
        self._accept = self._make_accept()
        self._remove.on_closed += [
            self._accept.on_jobs_closed,
            self._checkpoint_folders.on_jobs_closed,
            self._staging.on_jobs_closed,
        ]
        self._remove.start(self._on_fault)
        self._core_loop.start(commands, self._on_fault)
        self._nodelist.start(self._on_fault)
        self._availability.start(self._on_fault)
        self._notifier.start()
        self._accept.start(self._on_fault)
        # Last: a process that reads the address may connect at once.
        write_whole(self._config.run / "server.address", f"{self.address}\n")

    def stop(self) -> None:
        """Accept no more work, finish what was accepted, and end all threads. Jobs keep running."""
        if self._accept is not None:
            self._accept.stop()
        self._availability.stop()
        self._notifier.stop()
        if self._services is not None:
            self._services.stop_joining()
        self._connections.close_all()
        self._rpc.stop()
        self._staging.close()
        self._removals.stop()
        self._shared_folder.remove()
        self._nodelist.stop()
        self._core_loop.stop()
        self._remove.stop()
        self._writer.stop()
        self._guard.close()
        self._reader.close()
        self._engine.dispose()

    def reload(self, config: Config) -> None:
        """Apply those settings of a new configuration that can change while the server runs.

        Called in the main thread.
        """
        self._config = config
        shares, user_limits = config.shares(), config.limits_of_users()
        self._submissions.configure(shares, config.max_array_size, config.federated_processors)
        self._status.submission_limits.limits = user_limits
        self._core_loop.post(
            SettingsChanged(config.limits(), config.negotiation, shares, user_limits)
        )
        self._rate_limiter.configure(config.session_rate, config.session_burst)
        self._dispatcher.settings = self._launch_settings()
        try:
            self._access.roles = config.read_roles()
        except RolesFileError as error:  # it was good a moment ago
            log.error("SIGHUP: %s; the roles are unchanged", error)
        logging.getLogger().setLevel(logging.DEBUG if config.debug else logging.INFO)

    def _make_submissions(self, config: Config) -> Submissions:
        submissions = Submissions(
            self._core_loop,
            self._status,
            self._writer,
            self._reader,
            self._programs,
            self._clock,
            self._job_ids,
        )
        submissions.configure(config.shares(), config.max_array_size, config.federated_processors)
        submissions.notify_rules, submissions.staging = config.notify_rules(), self._staging
        self._status.submission_limits.limits = config.limits_of_users()
        return submissions

    def _remove_old_checkpoints(self) -> None:
        """Remove the checkpoints of all jobs that have ended."""
        last = self._job_ids.last()  # a later job may have no entry yet
        entries = self._status.entries(ended_since=None)
        open_jobs = {JobId(entry.info["id"]): entry.uid for entry in entries}
        self._checkpoint_folders.sweep(open_jobs, last, self._uid_of)
        self._staging.sweep(open_jobs)

    def _uid_of(self, job: JobId) -> int | None:
        """Return the user id of a job that has ended; None if the job is unknown."""
        entry = self._status.entry(job)
        return entry.uid if entry is not None else self._reader.uid_of(job)

    def _collect_ended_jobs(self, jobs: Sequence[int]) -> None:
        """Pass ended jobs to the collector of exits, which is created later than the core loop."""
        self._remove.on_jobs_ended(jobs)

    def _new_generation(self, meta: Mapping[str, str]) -> Mapping[str, str]:
        """Store the next generation, which is the number of this start.

        For a new cluster, also store its name and key. All of these values are durable before
        anything uses them. Return the table ``meta`` with the new values.
        """
        used = self._config.state / GENERATION_FILE
        seen = read_last_seen(self._config.state / COMMITS_FILE)
        fresh = {
            **next_generation(meta, used, self._reader.last_job_id(), seen),
            "cluster": meta.get("cluster") or str(uuid.uuid4()),
            "key": meta.get("key") or secrets.token_hex(32),
            CLOCK_KEY: self._clock.record(boot_id()),
        }
        note = Note(
            self._clock.now(), "server.started", f"server started, generation {fresh['generation']}"
        )
        check_values(self._config.state / "pliant.db", fresh)
        changes = [put_meta(key, value) for key, value in fresh.items()]
        with self._engine.begin() as connection:
            apply_writes(connection, [*changes, add_note(note)])
        checkpoint(self._engine)  # a removed WAL then loses only later changes
        write_last_generation(
            used, fresh["generation"]
        )  # last: if it is ahead of the database, that is an old copy
        return {**meta, **fresh}

    def _take_over(self) -> Sequence[Command]:
        """Restore all parts from the database; return the core's commands to carry out first."""
        stored = self._stored
        open_jobs = [job for job, _ in stored.open_jobs]
        last, first_run = parse_two_ids(self._meta.get(RUNS_FROM, "0 0"))
        for job in open_jobs:
            job.runs_from = first_run if job.id <= last else 0
        memory = json.loads(self._meta.get("memory", "null"))
        next_resize = int(self._meta.get(NEXT_RESIZE, "1"))
        self._shared_folder.write(make_folder=not self._config.checkpoints)
        for node in stored.nodes if self._shared_folder.path else ():
            node.shares_checkpoints = None  # until it has registered
        self._core.restore(
            stored.nodes, open_jobs, memory, next_resize, stored.usage, stored.ended_before
        )
        commands = self._core.recover(self._clock.now())
        self._status.publish_nodes(self._core.nodes.values())
        self._status.strategy = self._core.strategy
        self._status.strategy_options = self._planner.options or {}
        self._status.submission_limits.restore(self._reader.program_sizes())
        for job, summary in [*stored.ended_jobs, *stored.open_jobs]:
            self._status.publish_summary(job.id, summary)
            self._status.publish_jobs([job])
        self._nodelist.restore(stored.nodes)
        self._take_over_worlds()
        self._remove_old_checkpoints()
        log.info("%d nodes, %d jobs that have not ended", len(stored.nodes), len(open_jobs))
        del self._stored  # may be large, and the parts have taken what they need
        return commands

    def _take_over_worlds(self) -> None:
        for row in self._stored.worlds:
            # The node of a rank that has exited may have been removed since.
            nodes = frozenset(self._status.node_map.names(from_indices(row.processors)))
            self._worlds.add(
                World(row.name, row.job, row.run, row.resize, row.epoch, row.processors, nodes)
            )
            for rank in self._stored.exits[row.name]:
                self._remove.restore(row.job, row.name, rank)

    # ---------------------------------------------------------------- parts

    def _listen(self) -> str:
        """Start the gRPC server, and return its address on this host."""
        parts = ServiceParts(
            self._core_loop,
            self._connections,
            self._nodelist,
            self._remove,
            self._barriers,
            self._validator,
            self._status,
            self._tokens,
            self._clock,
            self._rate_limiter,
            self._job_ids.on_node_registered,
            self._shared_folder,
            self._removals,
            self._step_resizes,
            StagingService(self._status, self._tokens, self._staging, self._reader),
        )
        services = self._services = Services(parts, self._config, self._generation, self._secret)
        self._remove.on_closed += [
            self._barriers.forget,
            lambda jobs, _: self._rate_limiter.forget(jobs),
        ]
        found = services.listen(self._rpc, self._meta, self._on_fault)
        self._writer.commit([put_meta(key, value) for key, value in found.ports.items()])
        self.tls_addresses = found.tls
        return found.local

    def _launch_settings(self) -> LaunchSettings:
        config = self._config
        return LaunchSettings(
            application_address=self.address,
            address_file=str(config.run / "server.address"),
            kill_grace_s=config.kill_grace_s,
            lease_s=config.lease_s,
            transport=config.transport,
            interface=config.interface,
            checkpoints=self._checkpoint_folders,
        )

    def _make_subscriptions(self, jobs: JobLookup) -> Subscriptions:
        feed = ChangeFeed(self._status, self._reader, self._connections)
        self._status.on_jobs, self._status.on_nodes = feed.on_jobs, feed.on_nodes
        self._writer.on_commit = feed.on_commit
        streams = Streams(
            feed, self._status, self._reader, self._clock, self._access, self._generation
        )
        return Subscriptions(streams, jobs)

    def _make_accept(self) -> UserSocketServer:
        identity = ServerInfo(
            pid=os.getpid(),
            generation=self._generation,
            started=self._clock.now(),
            address=self.address,
            version=__version__,
        )
        access = self._access
        jobs = JobLookup(self._status, self._reader, access)
        config = self._config
        rules = SubmissionRules(
            for_all_users=config.users == "all",
            allow_root_jobs=config.allow_root_jobs,
            lowest_uid=config.lowest_uid,
        )
        operations = Operations(
            self._submissions,
            Submitters(rules, access, self._status),
            self._availability,
            StateQueries(
                self._core_loop,
                self._status,
                self._reader,
                self._clock,
                self._connections,
                jobs,
                identity,
            ),
            Commands(
                self._core_loop,
                self._status,
                self._connections,
                jobs,
                access,
                self._configured,
                self._step_resizes,
            ),
            UsageQueries(self._core_loop, self._reader, self._clock, jobs),
            self._make_subscriptions(jobs),
            clock=self._clock,
            identity=identity,
            access=access,
            refusals=RequestRecords(self._writer, self._clock),
            stop=self._stop_server,
            measurements=self._measurements,
            metrics=MetricsQuery(
                self._measurements, self._status, self._connections, self._clock, identity
            ),
            staging=StagingRequests(self._staging, jobs, self._reader),
        )
        sockets = {config.run / "server.sock": 0o600}
        if config.users_folder is not None:
            sockets[config.users_folder / "server.sock"] = 0o666
        return UserSocketServer(
            sockets,
            operations,
            exempt=frozenset({0, access.own_uid}),
            login_hosts=self._services.login_hosts if self._services else None,
        )
