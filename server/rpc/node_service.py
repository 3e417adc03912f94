"""The stream of a node controller.

The controller sends its registration, heartbeats, barriers and exits; the server sends orders.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import grpc

from pliant.core.events import CheckpointFolderTested, NodeAble, NodeRegistered
from pliant.core.values.ids import NodeName
from pliant.faults import message
from pliant.protos import node_pb2, node_pb2_grpc, versions
from pliant.protos.codec import (
    exits_from_proto,
    load_from_proto,
    node_from_proto,
    ready_from_proto,
)
from pliant.protos.codec_error import CodecError
from pliant.protos.relay_server_rank import SERVER_RANK
from pliant.protos.report_chunking import join
from pliant.protos.sanitize_text import sanitize_text
from pliant.protos.signed_orders.launch_order import VERSION
from pliant.server.authentication.opening_handshake import NodeNotAdmittedError
from pliant.server.checkpoints.shared_folder_probe import SHARED, SharedFolderProbe
from pliant.server.execution.connections import Connections, NodeStream, Stream
from pliant.server.execution.core_loop import CoreLoop
from pliant.server.rpc.checkpoint_removals import CheckpointRemovals
from pliant.server.rpc.exit_collector import EndReport, ExitCollector
from pliant.server.rpc.lost_message_detection import LostMessageDetector
from pliant.server.rpc.node_authentication import NEEDS_SECRET, NodeAuthenticator, NodePeer
from pliant.server.rpc.node_list import NodeList, stale_server_reason
from pliant.server.rpc.pmi_barriers import BarrierService
from pliant.server.rpc.report_validation import ReportValidator
from pliant.server.rpc.step_reports import steps_from_proto
from pliant.server.rpc.unauthenticated_peers import (
    PeerWarnings,
    TooManyUnauthenticatedPeersError,
    UnauthenticatedPeers,
    readable,
)

log = logging.getLogger(__name__)

#: A peer must authenticate itself this many seconds after it connected.
HELLO_TIMEOUT_S = 10.0
#: Characters of a name that has not been checked yet.
MAX_NAME_SHOWN = 64
#: Failpoints where reports arrive, by kind.
_ARRIVED = {
    "world_ready": "server.ready.in",
    "fence": "server.fence.in",
    "ranks_exited": "server.exits.in",
}


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What a server shows to nodes, such as its generation (the number of its start).

    It also says how the server authenticates nodes.
    """

    generation: int
    #: Random id of this start. A server on a copy of the database may have the same generation.
    instance_id: str
    beat_interval_s: float
    authenticator: NodeAuthenticator


class NodeService(node_pb2_grpc.NodeServiceServicer):
    """Serves the streams of node controllers. Runs in the gRPC loop."""

    def __init__(
        self,
        core_loop: CoreLoop,
        connections: Connections,
        nodelist: NodeList,
        remove: ExitCollector,
        barriers: BarrierService,
        validator: ReportValidator,
        identity: ServerIdentity,
    ) -> None:
        self._core_loop, self._connections, self._nodelist = core_loop, connections, nodelist
        self._remove, self._barriers, self._validator = remove, barriers, validator
        self._identity = identity
        self._authenticator = identity.authenticator
        self._certified = identity.authenticator.certified
        self._unauthenticated, self._warnings = UnauthenticatedPeers(), PeerWarnings(log)
        #: Called with the registration of each node, before the core handles it.
        self.on_registered: list[Callable[[NodeRegistered], None]] = []
        #: Where applications of nodes with certificates connect; empty for other nodes.
        self.application_address = ""
        #: The test of the folder of checkpoints; None if nodes are not tested.
        self.shared_folder: SharedFolderProbe | None = None
        #: Has nodes remove checkpoints of users; None if nodes are not asked.
        self.removals: CheckpointRemovals | None = None
        #: Takes the messages of shims to the server.
        self.on_shim_message: Callable[[NodeName, node_pb2.Relay], None] | None = None

    async def Connect(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        """Serve one controller until either side ends the stream."""
        reports = readable(aiter(request_iterator))
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                with self._unauthenticated.admit():
                    peer = await self._authenticator.authenticate(context, reports)
                    if peer is None:
                        self._warnings.warning("a stream is not authenticated: %s", context.peer())
                        await context.abort(grpc.StatusCode.UNAUTHENTICATED, NEEDS_SECRET)
                        return
                reports = join(reports)
                first = await anext(reports)
            wrong = _wrong_version(first.register)
            if wrong is None and self._certified is not None:
                wrong = _wrong_order_version(first.register)
            if wrong is not None:
                yield wrong
                return
            event = self._registration(first.register)
        except (TimeoutError, StopAsyncIteration):
            return
        except TooManyUnauthenticatedPeersError as error:
            self._warnings.warning("a stream was refused: %s", error)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
            return
        except CodecError as error:
            self._warnings.warning("a registration was refused: %s", error)
            yield _refused(str(error))
            return
        except NodeNotAdmittedError as error:
            text = "a stream was refused: %s (%s)"
            self._warnings.warning(text, error, context.peer(), kind=error.name)
            if error.is_temporary:
                await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            yield _refused(str(error))
            return
        if denied := peer.refusal(event.name, event.slots):
            certificate = peer.certified
            kind = certificate.name if certificate else event.name
            self._warnings.warning("a registration was refused: %s", denied, kind=kind)
            yield _refused(denied)
            return
        taken = self._nodelist.name_conflict(event.name)
        reason = taken or self._nodelist.refusal(event, self._stale(first.register))
        if reason is not None:
            log.warning("node %s refused: %s", event.name, reason)
            yield _refused(reason, taken=taken is not None)
            return
        for call in self.on_registered:
            call(event)
        self._nodelist.note_root_helper(event.name, first.register.runs_as_user)
        self._nodelist.publish_containment(event.name, first.register)
        stream: NodeStream = Stream(asyncio.get_running_loop(), f"node {event.name}")
        with self._watched(peer, stream):
            async with aclosing(self._serve(event, stream, reports)) as orders:
                async for order in orders:
                    yield order

    def _registration(self, register: node_pb2.Register) -> NodeRegistered:
        event = node_from_proto(register)
        if self.shared_folder is None or not self.shared_folder.path:
            return event
        return replace(event, shares_checkpoints=None)  # until it has answered Welcome

    def _watched(self, peer: NodePeer, stream: NodeStream) -> AbstractContextManager[None]:
        """Return a context that closes the stream if the node's certificate is revoked."""
        if self._certified is None or peer.certified is None:
            return nullcontext()
        return self._certified.connected(peer.certified, stream)

    async def _serve(
        self, event: NodeRegistered, stream: NodeStream, reports: AsyncIterator[Any]
    ) -> AsyncGenerator[Any, None]:
        """Accept a node's registration, and yield its orders until either side ends the stream."""
        # Attached before the core handles the registration, so that its orders wait in the stream.
        self._connections.attach_node(event.name, stream)
        self._nodelist.watch(event.name)
        reader = None
        try:
            name = event.name
            future = self._core_loop.commit(event, (), lambda core: core.nodes[name].first)
            yield self._welcome(await asyncio.wrap_future(future))
            log.info("node %s connected with %d slots", name, event.slots)
            if self._certified is not None:
                self._certified.greet(stream)
            reader = asyncio.create_task(self._read(name, reports, stream))
            async for order in stream.messages():
                if order.HasField("start_world"):
                    order.start_world.heard = stream.last_beat
                yield order
        finally:
            if reader is not None:
                reader.cancel()
            self._connections.detach_node(event.name, stream)
            if self.removals is not None and not self._connections.node_connected(event.name):
                self.removals.on_node_gone(event.name)
            log.info("node %s: stream closed", event.name)

    def _stale(self, register: node_pb2.Register) -> str | None:
        identity = self._identity
        return stale_server_reason(
            (identity.generation, identity.instance_id), (register.generation, register.life)
        )

    def _welcome(self, first_processor: int) -> node_pb2.NodeOrder:
        return node_pb2.NodeOrder(
            welcome=node_pb2.Welcome(
                generation=self._identity.generation,
                beat_interval_s=self._identity.beat_interval_s,
                first_processor=first_processor,
                life=self._identity.instance_id,
                application_address=self.application_address,
                checkpoint_test=self.shared_folder.path if self.shared_folder else b"",
                **versions.numbers(),
            )
        )

    async def _read(self, node: NodeName, reports: Any, stream: NodeStream) -> None:
        """Handle reports until the controller ends the stream or sends an invalid one."""
        delivery = LostMessageDetector()
        try:
            async for report in reports:
                if stream.is_closed:  # the node may have been revoked
                    return
                if not report.HasField("beat"):
                    self.handle_report(node, report, delivery)
                    if self._certified is not None and report.HasField("renew_certificate"):
                        self._certified.renew(stream, report.renew_certificate.signing_request)
                    continue
                if self._nodelist.beat(node, report.beat):
                    _confirm_beat(report.beat, stream)
                if lost := _find_lost_messages(report.beat, delivery, stream):
                    log.warning("node %s: %s; it must register again", node, lost)
                    return
        except CodecError as error:
            text = "node %s sent an invalid message, stream closed: %s"
            self._warnings.warning(text, node, error, kind=node)
        finally:
            stream.close()

    def handle_report(
        self, node: NodeName, report: node_pb2.NodeReport, delivery: LostMessageDetector
    ) -> None:
        """Turn a report of a registered node into an event, or pass it to the part that handles it.

        Args:
            node: the node that sent the report.
            report: the whole report, even if it was sent in parts.
            delivery: counts the reports of the node's stream.
        """
        kind = report.WhichOneof("body")
        if kind is None:  # from a later version, which knows that this one ignores it
            delivery.reports += 1
            return
        if kind == "able":
            delivery.reports += 1
            self._core_loop.post(NodeAble(node))
            return
        if kind == "renew_certificate":
            delivery.reports += 1
            return
        if kind == "load":
            delivery.reports += 1
            load = load_from_proto(node, report.load)
            self._nodelist.publish_load(load)
            self._core_loop.post(load)
            return
        if kind == "checkpoint_folder":
            delivery.reports += 1
            self._note_checkpoint_folder(node, report.checkpoint_folder)
            return
        if kind == "checkpoints_removed":
            delivery.reports += 1
            if self.removals is not None:
                self.removals.on_result(node, report.checkpoints_removed)
            return
        if kind == "relay":
            delivery.reports += 1
            self._pass_on(node, report.relay)
            return
        if kind not in _ARRIVED:
            raise CodecError(f"{kind} is not expected here")
        times = message(_ARRIVED[kind])
        for _ in times:
            self._hear(node, report)
        delivery.reports += bool(times)

    def _note_checkpoint_folder(self, node: NodeName, report: node_pb2.CheckpointFolder) -> None:
        if self.shared_folder is None or self.removals is None:
            return
        found = self.shared_folder.evaluate(node, report)
        self._nodelist.publish_checkpoint_folder(node, found)
        self._core_loop.post(CheckpointFolderTested(node, found == SHARED))
        is_able = found == SHARED and self._nodelist.has_root_helper(node)
        self.removals.on_node(node, is_able=is_able)

    def _hear(self, node: NodeName, report: node_pb2.NodeReport) -> None:
        match report.WhichOneof("body"):
            case "world_ready":
                self._ready(node, report.world_ready)
            case "fence":
                self._barriers.take(node, report.fence)
            case "ranks_exited":
                self._exits(node, report.ranks_exited)

    def _pass_on(self, node: NodeName, message: node_pb2.Relay) -> None:
        """Pass on a message from a shim, a process that starts the ranks of a world on one node.

        The message goes to another shim of the world, or to the server itself. It is dropped if it
        is not valid. A shim sends a lost message again.
        """
        if message.to_rank == SERVER_RANK:
            if self.on_shim_message is not None:
                self.on_shim_message(node, message)
            return
        target = self._validator.relay_target(node, message)
        if target is not None:
            self._connections.send_to_node(target, node_pb2.NodeOrder(relay=message))

    def _ready(self, node: NodeName, message: node_pb2.WorldReady) -> None:
        event = ready_from_proto(node, message)
        wrong = self._validator.fault_of_ready(node, message)
        if wrong is not None:
            log.warning("node %s reports world %s ready: %s", node, message.world, wrong)
            return
        self._core_loop.post(event)

    def _exits(self, node: NodeName, message: node_pb2.RanksExited) -> None:
        event = exits_from_proto(message)
        ranks = tuple(end.rank for end in message.exits)
        times = tuple(end.at for end in message.exits)
        steps = steps_from_proto(message)
        report = EndReport(node, message.world, ranks, times, event, steps)
        wrong = self._validator.fault_of_exits(node, message)
        if wrong is not None:
            log.warning("node %s reports exits in world %s: %s", node, message.world, wrong)
            self._core_loop.post(self._remove.processors_emptied(report))
            return
        self._remove.report(report)


def _confirm_beat(beat: node_pb2.Beat, stream: NodeStream) -> None:
    """Record the number of a heartbeat, and confirm the heartbeat if the node asks for that.

    A node on which jobs must end when it loses contact needs the confirmation, to know when its
    lease was last renewed.
    """
    stream.last_beat = beat.sequence
    if beat.confirm:
        heard = node_pb2.BeatHeard(sequence=beat.sequence)
        stream.send(node_pb2.NodeOrder(beat_heard=heard))


def _find_lost_messages(
    beat: node_pb2.Beat, delivery: LostMessageDetector, stream: NodeStream
) -> str:
    return delivery.missing(beat, stream.sent, asyncio.get_running_loop().time())


def _wrong_version(register: node_pb2.Register) -> node_pb2.NodeOrder | None:
    """Return a refusal for a controller whose protocol version is incompatible; None if it fits."""
    who = f"the controller of node {register.name[:MAX_NAME_SHOWN]}"
    reason = versions.peer_mismatch(who, register.protocol, register.oldest_reader)
    if not reason:
        return None
    log.warning("refused: %s", reason)
    order = _refused(f"at the server: {reason}")
    order.refused.protocol = versions.PROTOCOL
    return order


def _wrong_order_version(register: node_pb2.Register) -> node_pb2.NodeOrder | None:
    """Return a refusal for a node that would not carry out the launch orders of this server.

    Such a node is refused because every job that is sent to it would be held. The result is None if
    the node carries the orders out. It is also None if jobs run there, because they would be lost
    when the server is updated before the node.
    """
    found = register.order_version
    if not register.runs_as_user or found == VERSION or register.worlds:
        return None
    name = register.name[:MAX_NAME_SHOWN]
    older = f"an older version (its controller has protocol {register.protocol})"
    reason = (
        f"the root helper of node {name} carries out launch orders of "
        f"{f'version {found}' if found else older}, and this server signs version {VERSION}: run "
        f"the same version of Pliant on both, and restart root helper and controller of {name}"
    )
    log.warning("refused: %s", reason)
    order = _refused(reason)
    order.refused.protocol = versions.PROTOCOL
    return order


def _refused(reason: str, *, taken: bool = False) -> node_pb2.NodeOrder:
    return node_pb2.NodeOrder(refused=node_pb2.Refused(reason=sanitize_text(reason), taken=taken))
