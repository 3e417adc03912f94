"""Carry out the core's commands: orders to nodes, messages to applications."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pliant.core import commands
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.lost_contact_policy import parse_isolation_policy
from pliant.core.values.processors import indices
from pliant.protos import app_pb2, node_pb2
from pliant.protos.checkpoint_codec import suspend_step_to_proto
from pliant.protos.codec import answer_to_proto, template_to_proto
from pliant.protos.sanitize_text import sanitize_text
from pliant.server.authentication.app_tokens import AppTokens
from pliant.server.database.statements import Write, add_world
from pliant.server.execution.connections import Connections
from pliant.server.execution.job_program_cache import ProgramCache
from pliant.server.execution.start_orders import (
    LaunchSettings,
    add_share,
    end_when_cut_off,
    start_orders,
)
from pliant.server.registry.job_program import Program
from pliant.server.registry.mpi_worlds import World, WorldRegistry
from pliant.server.registry.status_cache import JobEntry, StatusCache

if TYPE_CHECKING:  # a server for one host needs no certificates, which take long to import
    from pliant.server.execution.launch_signing import OrderSigner

log = logging.getLogger(__name__)


class CommandDispatcher:
    """Turns commands of the core into messages to nodes and applications.

    Runs in the execute thread.
    """

    def __init__(
        self,
        connections: Connections,
        worlds: WorldRegistry,
        status: StatusCache,
        programs: ProgramCache,
        tokens: AppTokens,
        settings: LaunchSettings,
        signer: OrderSigner | None = None,
    ) -> None:
        self._signer = signer
        self._connections, self._worlds, self._status = connections, worlds, status
        self._programs, self._tokens = programs, tokens
        #: Replaced when the server listens, and when the configuration is reloaded.
        self.settings = settings
        self._carry = {
            commands.Launch: self._launch,
            commands.SendOffer: self._offer,
            commands.AnswerRequest: self._answer,
            commands.SendWithdraw: self._withdraw,
            commands.OpenStandby: self._standby,
            commands.SendGo: self._go,
            commands.SendSuspend: self._suspend,
            commands.Kill: self._kill,
            commands.SignalRanks: self._signal,
        }

    def prepare(self, command: commands.Command) -> Sequence[Write]:
        """Return the rows that must be in the database before a command is carried out.

        Only a command that starts processes needs a row, that of their world (ranks started
        together).
        """
        if not isinstance(command, commands.Launch):
            return ()
        return [add_world(self._world(command))]

    def dispatch(self, command: commands.Command) -> None:
        """Send the messages that carry out a command of the core.

        A node or application that is not connected gets its messages when it registers again.
        """
        action = self._carry.get(type(command))
        if action is not None:
            action(command)  # type: ignore[operator]

    # ---------------------------------------------------------------- to nodes

    def _world(self, command: commands.Launch) -> World:
        nodes = self._status.node_map
        return World(
            name=self._worlds.name(command.job, command.run, command.resize),
            job=command.job,
            run=command.run,
            resize=command.resize,
            epoch=command.epoch,
            processors=tuple(command.processors),
            nodes=frozenset(nodes.host(processor).name for processor in command.processors),
            joins=command.remaining,
        )

    def _launch(self, command: commands.Launch) -> None:
        entry = self._status.entry(command.job)
        if entry is None:
            raise KeyError(f"job {command.job} is not in the status cache")
        world = self._world(command)
        self._worlds.add(world)
        orders = start_orders(
            world,
            entry.info["type"],
            self._program(entry),
            self._status.node_map,
            self._tokens.token(command.job, command.run),
            self.settings,
            # Scripts do not need the variables of jobs that may grow; shims give them to steps.
            may_grow=entry.info["class"] != "rigid" and entry.info["type"] == "mpi",
        )
        stop_after_s = parse_isolation_policy(entry.info["when_cut_off"])
        end_when_cut_off(orders.values(), stop_after_s, self.settings)
        key = self._tokens.checkpoint_key(command.job)
        for node, order in orders.items():
            order.checkpoint_key = key
            add_share(order, command.shares.get(node))
            if command.only in (None, node):
                self._sign(order, node, entry.uid)
                self._connections.send_to_node(node, node_pb2.NodeOrder(start_world=order))

    def _program(self, entry: JobEntry) -> Program:
        job, array = JobId(entry.info["id"]), entry.info.get("array_job")
        if array is None:
            return self._programs.get(job)
        return self._programs.get_of_task(JobId(array), entry.info["array_task"])

    def _sign(self, order: node_pb2.StartWorld, node: NodeName, uid: int) -> None:
        """Sign an order to start processes. Nothing is signed if the cluster has no identity.

        Nodes of a cluster with an identity refuse orders without a signature.
        """
        if self._signer is not None and not self._signer.sign(order, node, uid):
            log.error("job %d: user %d has no account on this host", order.job, uid)

    def _kill(self, command: commands.Kill) -> None:
        parts: list[tuple[NodeName, list[int]]]
        if command.processors:
            split = self._status.node_map.split(command.processors)
            parts = [(node, list(indices(part))) for node, part in split]
        else:
            parts = [(node, []) for node in self._worlds.nodes(command.job, command.run)]
        for node, processors in parts:
            order = node_pb2.Kill(
                job=command.job, run=command.run, processors=processors, grace_s=command.grace_s
            )
            self._connections.send_to_node(node, node_pb2.NodeOrder(kill=order))

    def _signal(self, command: commands.SignalRanks) -> None:
        order = node_pb2.Signal(job=command.job, run=command.run, number=command.number)
        for node in self._worlds.nodes(command.job, command.run):
            self._connections.send_to_node(node, node_pb2.NodeOrder(signal=order))

    def _control(self, world: World, message: dict[str, object], rank: int | None = None) -> None:
        """Send a message for an application's ranks to their nodes, which pass it on to the ranks.

        Args:
            world: the ranks, which were started together.
            message: the message, which is sent as JSON.
            rank: the only rank that gets the message; None for all.
        """
        nodes = self._status.node_map
        node_names = world.nodes if rank is None else {nodes.host(world.processors[rank]).name}
        order = node_pb2.Control(
            world=world.name,
            ranks=[] if rank is None else [rank],
            message=json.dumps(message).encode("ascii"),
        )
        for node in node_names:
            self._connections.send_to_node(node, node_pb2.NodeOrder(control=order))

    # ---------------------------------------------------------------- to applications

    def _offer(self, command: commands.SendOffer) -> None:
        self._connections.send_to_coordinator(
            command.job, command.run, app_pb2.AppOrder(offer=template_to_proto(command.template))
        )

    def _answer(self, command: commands.AnswerRequest) -> None:
        order = app_pb2.AppOrder(request_answer=answer_to_proto(command))
        self._connections.send_to_coordinator(command.job, command.run, order)

    def _withdraw(self, command: commands.SendWithdraw) -> None:
        order = app_pb2.Withdraw(resize=command.resize, reason=sanitize_text(command.reason))
        self._connections.send_to_coordinator(
            command.job, command.run, app_pb2.AppOrder(withdraw=order)
        )

    def _standby(self, command: commands.OpenStandby) -> None:
        place = self._worlds.latest(command.job, command.run, command.processor)
        if place is None:
            log.error("job %d: no world on processor %d", command.job, command.processor)
            return
        world, rank = place
        self._control(world, {"op": "standby", "resize": command.resize}, rank)

    def _suspend(self, command: commands.SendSuspend) -> None:
        step = suspend_step_to_proto(command.step)
        order = app_pb2.Suspend(number=command.number, step=step)
        self._connections.send_to_coordinator(
            command.job, command.run, app_pb2.AppOrder(suspend=order)
        )

    def _go(self, command: commands.SendGo) -> None:
        secret = self._tokens.join_secret(command.job, command.run, command.resize)
        address = self._connections.rendezvous(command.job, command.run)
        if command.joining_processors:
            world = self._worlds.get(self._worlds.name(command.job, command.run, command.resize))
            if world is not None:
                join = {
                    "op": "join",
                    "address": address,
                    "secret": secret,
                    "resize": command.resize,
                }
                self._control(world, join)
        order = app_pb2.Go(
            resize=command.resize,
            epoch=command.epoch,
            leaving_ranks=command.leaving_ranks,
            joining_processors=command.joining_processors,
            secret=secret,
        )
        self._connections.send_to_coordinator(command.job, command.run, app_pb2.AppOrder(go=order))
