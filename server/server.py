"""The running server: every part made once, started bottom up, stopped top down."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import Engine

from pliant.core.commands import Command, Note
from pliant.core.machine import Core
from pliant.core.values.processors import of
from pliant.protos.address import TcpAddress
from pliant.protos.daemons.files import write_whole
from pliant.server.config import Config
from pliant.server.database.commit_guard import FILE_NAME as COMMITS_FILE
from pliant.server.database.commit_guard import Guard, read_seen
from pliant.server.database.engine import check_values, checkpoint, open_database, open_reader
from pliant.server.database.generation import FILE_NAME as GENERATION_FILE
from pliant.server.database.generation import GIVEN_KEY, next_generation, write_used
from pliant.server.database.meta_keys import NEXT_RESIZE, RUNS_FROM, two_numbers
from pliant.server.database.reader import Reader
from pliant.server.database.statements import add_note, put_meta
from pliant.server.database.writer import Writer, apply_changes
from pliant.server.execution.connections import Hub
from pliant.server.execution.dispatch import Effects, Programs
from pliant.server.execution.execute import Execute
from pliant.server.execution.planner import Planner
from pliant.server.execution.start_orders import Surroundings
from pliant.server.locks import boot_id
from pliant.server.registry.checkpoint_dirs import CheckpointFolders
from pliant.server.registry.job_ids import Numbers
from pliant.server.registry.status_cache import KEPT_S, Board
from pliant.server.registry.worlds import World, WorldBook
from pliant.server.rpc.app_service import AppService
from pliant.server.rpc.barrier_service import FenceRelay
from pliant.server.rpc.barriers import Fences
from pliant.server.rpc.grpc_server import RpcServer
from pliant.server.rpc.node_service import Greeting, NodeService
from pliant.server.rpc.nodelist import NodeList
from pliant.server.rpc.remove import Remove
from pliant.server.rpc.report_validation import Credence
from pliant.server.security.app_tokens import Keyring
from pliant.server.security.cluster_secret import FILE_NAME, load_secret
from pliant.server.support.clock import CLOCK_KEY, resumed
from pliant.server.support.rate_limit import Rates
from pliant.server.users.accept import Accept
from pliant.server.users.authorisation import Authority
from pliant.server.users.operations import Actions, Identity
from pliant.server.users.queries import Queries
from pliant.server.users.refused_requests import Refusals
from pliant.server.users.submissions import Submissions

log = logging.getLogger(__name__)


class House:
    """All parts of one server."""

    def __init__(
        self, config: Config, stop: Callable[[], None], on_fault: Callable[[str], None]
    ) -> None:
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
        self._clock = resumed(meta, boot_id(), self._reader.last_time())
        self._meta = self._new_generation(meta)
        self._generation = int(self._meta["generation"])
        given = int(self._meta.get(GIVEN_KEY, "0"))
        self._numbers = Numbers(self._reader.last_job(), given)
        self._board, self._hub, self._rpc = Board(), Hub(), RpcServer()
        self._guard = Guard(path, self._generation, self._numbers.last)
        self._writer = Writer(self._engine, self._guard)
        self._secret = load_secret(config.state / FILE_NAME)
        self._keyring = Keyring(bytes.fromhex(self._meta["key"]))
        short = self._meta["cluster"].replace("-", "")[:8]
        self._book = WorldBook(short)
        self._folders = CheckpointFolders(config.checkpoint_folder, short)
        self._programs = Programs(self._reader)
        self._core = Core(
            config.strategy,
            config.limits(),
            policy=config.negotiation,
            resources=config.resources,
        )
        self._board.resources = config.resources
        self._effects = Effects(self._hub, self._book, self._board, self._programs, self._keyring)
        self._planner = Planner(
            config.strategy, config.strategy_options, config.strategy_deadline_s
        )
        self._execute = Execute(
            self._core,
            self._planner,
            self._writer,
            self._clock,
            self._effects,
            self._board,
            debug=config.debug,
        )
        self._credence = Credence(self._book, self._board)
        self._remove = Remove(
            self._execute, self._hub, self._book, self._board, self._writer, self._credence
        )
        self._nodelist = NodeList(
            self._execute, self._hub, self._board, config.beat_interval_s, config.lease_s
        )
        self._submissions = Submissions(
            self._execute,
            self._board,
            self._writer,
            self._reader,
            self._programs,
            self._clock,
            self._numbers,
        )
        self._queries = Queries(
            self._execute,
            self._submissions,
            self._planner,
            self._clock,
            config.strategy_deadline_s,
        )
        self._rates = Rates(config.session_rate, config.session_burst)
        self._accept: Accept | None = None
        self.address = ""

    # ---------------------------------------------------------------- start

    def start(self) -> None:
        """Take over what is stored, then let everybody in."""
        commands = self._restore()
        self._writer.start(self._on_fault)
        self.address = self._listen()
        self._effects.around = self._surroundings()
        self._execute.on_ended = self._remove.ended
        self._accept = self._make_accept()
        self._remove.on_closed += [self._accept.closed, self._folders.closed]
        self._remove.start(self._on_fault)
        self._execute.start(commands, self._on_fault)
        self._nodelist.start(self._on_fault)
        self._queries.start(self._on_fault)
        self._accept.start(self._on_fault)
        # Last: who reads the address may connect at once.
        write_whole(self._config.run / "server.address", f"{self.address}\n")

    def stop(self) -> None:
        """Take no more work, finish what is in flight; jobs go on."""
        if self._accept is not None:
            self._accept.stop()
        self._queries.stop()
        self._hub.close_all()
        self._rpc.stop()
        self._nodelist.stop()
        self._execute.stop()
        self._remove.stop()
        self._writer.stop()
        self._guard.close()
        self._reader.close()
        self._engine.dispose()

    def reload(self, config: Config) -> None:
        """Use another configuration, as far as a running server can; from the main thread."""
        self._config = config
        limits, policy = config.limits(), config.negotiation
        self._execute.call(lambda core: core.configure(limits, policy))
        self._rates.change(config.session_rate, config.session_burst)
        self._effects.around = self._surroundings()
        logging.getLogger().setLevel(logging.DEBUG if config.debug else logging.INFO)

    def _new_generation(self, meta: Mapping[str, str]) -> Mapping[str, str]:
        """Count the starts, and give a new cluster its name and its key; durable before any use."""
        used = self._config.state / GENERATION_FILE
        seen = read_seen(self._config.state / COMMITS_FILE)
        fresh = {
            **next_generation(meta, used, self._reader.last_job(), seen),
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
            apply_changes(connection, [*changes, add_note(note)])
        checkpoint(self._engine)  # whoever removes the log takes no more than this life's changes
        write_used(used, fresh["generation"])  # last: ahead of the database it means an old copy
        return {**meta, **fresh}

    def _restore(self) -> Sequence[Command]:
        """Fill core, board, books and leases from the database."""
        nodes, open_jobs = self._reader.nodes(), self._reader.open_jobs()
        ended = self._reader.recent_jobs(self._clock.now() - KEPT_S)
        memory = json.loads(self._meta.get("memory", "null"))
        next_resize = int(self._meta.get(NEXT_RESIZE, "1"))
        last, first_run = two_numbers(self._meta.get(RUNS_FROM, "0 0"))
        for job, _ in open_jobs:
            self._execute.standing.read(job)
            job.runs_from = first_run if job.id <= last else 0
        self._core.restore(nodes, [job for job, _ in open_jobs], memory, next_resize)
        commands = self._core.recover(self._clock.now())
        self._board.put_nodes(self._core.nodes.values())
        self._board.strategy = self._core.strategy
        for job, summary in [*ended, *open_jobs]:
            self._board.put_summary(job.id, summary)
            self._board.put_jobs([job])
        self._nodelist.restore(nodes)
        self._restore_worlds([job.id for job, _ in open_jobs])
        self._folders.sweep({job.id for job, _ in open_jobs})
        log.info("%d nodes, %d jobs that have not ended", len(nodes), len(open_jobs))
        return commands

    def _restore_worlds(self, jobs: Sequence[int]) -> None:
        rows = self._reader.worlds(jobs)
        gone: dict[str, list[int]] = {row.name: [] for row in rows}
        for name, rank in self._reader.exits(list(gone)):
            gone[name].append(rank)
        rows = [row for row in rows if len(gone[row.name]) < len(row.processors)]
        for row in rows:
            # The node of a rank that is gone may have been removed since.
            nodes = frozenset(self._board.node_map.names(of(row.processors)))
            self._book.add(
                World(row.name, row.job, row.run, row.resize, row.epoch, row.processors, nodes)
            )
            for rank in gone[row.name]:
                self._remove.restore(row.job, row.name, rank)
        self._fences = Fences(self._reader.fences([row.name for row in rows]))

    # ---------------------------------------------------------------- parts that need others

    def _listen(self) -> str:
        """Open the socket, or the TCP port: the configured one, that of the last start, or any."""
        relay = FenceRelay(self._hub, self._book, self._fences, self._writer)
        nodes = NodeService(
            self._execute,
            self._hub,
            self._nodelist,
            self._remove,
            relay,
            self._credence,
            Greeting(
                self._secret, self._generation, secrets.token_hex(8), self._config.beat_interval_s
            ),
        )
        nodes.on_registered.append(self._numbers.registered)
        apps = AppService(
            self._execute,
            self._hub,
            self._board,
            self._keyring,
            self._clock,
            generation=self._generation,
            rates=self._rates,
        )
        self._remove.on_closed += [relay.forget, lambda jobs, _: self._rates.forget(jobs)]
        address = self._config.address
        addresses = [address]
        if isinstance(address, TcpAddress) and not address.port:
            last = TcpAddress(address.host, int(self._meta.get("port", "0")))
            addresses = [last, address] if last.port else [address]
        found = self._rpc.start(nodes, apps, addresses, self._on_fault)
        if isinstance(found, TcpAddress):
            self._writer.commit([put_meta("port", str(found.port))])
        return str(found)

    def _surroundings(self) -> Surroundings:
        config = self._config
        return Surroundings(
            application_address=self.address,
            address_file=str(config.run / "server.address"),
            kill_grace_s=config.kill_grace_s,
            lease_s=config.lease_s,
            transport=config.transport,
            interface=config.interface,
            checkpoints=self._folders,
        )

    def _make_accept(self) -> Accept:
        identity = Identity(
            pid=os.getpid(),
            generation=self._generation,
            started=self._clock.now(),
            address=self.address,
            version=importlib.metadata.version("pliant"),
        )
        actions = Actions(
            self._execute,
            self._board,
            self._reader,
            self._submissions,
            self._clock,
            identity,
            stop=self._stop_server,
            hub=self._hub,
            queries=self._queries,
            refusals=Refusals(self._writer, self._clock),
            authority=Authority(os.geteuid(), self._config.operator_uids),
        )
        return Accept(self._config.run / "server.sock", actions)
