"""Watch the open streams of nodes with certificates.

The stream of a node ends when the node is revoked. A node gets a new certificate on request. A task
of the gRPC loop looks at the files of the cluster's identity twice a second, because commands of
the administrator change these files.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pliant.core.support.base_error import PliantError
from pliant.core.values.ids import NodeName
from pliant.protos import node_pb2
from pliant.protos.identity import authority
from pliant.protos.identity.admitted_nodes import issuer_of, key_id_of
from pliant.protos.identity.authority import DAY_S
from pliant.protos.identity.certificate_names import Identity, Role
from pliant.protos.identity.certificates import ends_at, format_certificates, renew_at
from pliant.protos.identity.cluster_files import load_issuer
from pliant.protos.identity.identity_errors import CertificateError
from pliant.protos.sanitize_text import sanitize_text
from pliant.server.authentication.node_admission import CertifiedNode, NodeAdmission
from pliant.server.authentication.refused_handshakes import RefusedHandshakes
from pliant.server.authentication.tls_files import ServerTls, TlsFiles
from pliant.server.execution.connections import NodeStream
from pliant.server.rpc.unauthenticated_peers import PeerWarnings
from pliant.server.support.threads import thread_pool

T = TypeVar("T")

log = logging.getLogger(__name__)

POLL_S = 0.5
#: A stream that does not read its refusal is cancelled after this long.
CANCEL_S = 2.0
REVOKED = "its certificate was revoked"
#: A node may ask for another certificate after this long, as when it could not write its files.
RENEWAL_INTERVAL_S = 10.0


@dataclass(slots=True, eq=False)
class _OpenStream:
    #: With the certificate with which the stream was opened.
    node: CertifiedNode
    #: With the last certificate that was issued on the stream.
    newest: CertifiedNode
    stream: NodeStream
    task: asyncio.Task[object]
    #: When the node may ask for another certificate, on the clock of the event loop.
    next_renewal: float = 0.0


class CertifiedNodes:
    """Keeps the node and the certificate of each open stream. Used in the gRPC loop."""

    def __init__(
        self,
        files: TlsFiles,
        admission: NodeAdmission,
        lose: Callable[[NodeName, str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare to check certificates and the list of admitted nodes for changes.

        Args:
            files: the files of the cluster's identity.
            admission: the list of nodes.
            lose: is called with the name of each node that is revoked, and the reason.
            clock: returns seconds since the epoch.
        """
        self._files, self._admission, self._lose, self._clock = files, admission, lose, clock
        self.handshakes = RefusedHandshakes("port of the nodes")
        self._open: set[_OpenStream] = set()
        self._lost: set[str] = set()
        self._warned_at = float("-inf")
        self._sent: ServerTls | None = None
        #: The version of the list of nodes at the last check; first a version that no list has.
        self._list_version: tuple[int, int] | None = (0, 0)
        self._warnings = PeerWarnings(log)
        self._tasks: set[asyncio.Task[None]] = set()
        # One thread, because calls wait for each other anyway, and many nodes may connect at once.
        self._threads = thread_pool("certificates", 1)

    @contextmanager
    def connected(self, node: CertifiedNode, stream: NodeStream) -> Iterator[None]:
        """Within this context, watch the stream of a node.

        The stream is closed if the node is revoked. If root certificates change, the stream carries
        the new ones to the node.
        """
        task = asyncio.current_task()
        assert task is not None
        opened = _OpenStream(node, node, stream, task)
        self._open.add(opened)
        if self._admission.has_earlier_certificates(node):
            self._start(self._in_thread(self._confirm, node))
        try:
            yield
        finally:
            self._open.discard(opened)

    def greet(self, stream: NodeStream) -> None:
        """Send the root certificates to a node that has just registered; it may have old ones."""
        for opened in self._open:
            if opened.stream is stream:
                self._send_roots(opened, self._files.current)

    def renew(self, stream: NodeStream, request: bytes) -> None:
        """Issue a new certificate to the node of a stream, and send it."""
        now = asyncio.get_running_loop().time()
        for opened in self._open:
            if opened.stream is stream and now >= opened.next_renewal:
                opened.next_renewal = now + RENEWAL_INTERVAL_S
                self._start(self._renew(opened, request))

    async def watch(self) -> None:
        """Check the files of the cluster's identity regularly until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self.check_files()
            self.handshakes.log_failures(loop.time())
            self._warn_of_age()
            await asyncio.sleep(POLL_S)

    def _warn_of_age(self) -> None:
        """Log once a day that certificates of the server should be renewed."""
        now = self._clock()
        if not 0 <= now - self._warned_at < DAY_S:
            self._warned_at = now
            for problem in self._files.problems(now):
                log.warning("%s", problem)

    def check_files(self) -> None:
        """End the streams of revoked nodes, and send changed root certificates to the others."""
        try:
            if (version := self._admission.list_version()) != self._list_version:
                self._end_revoked()
                self._list_version = version
        except (PliantError, OSError) as error:
            self._warnings.warning("the list of admitted nodes cannot be read: %s", error)
        if (current := self._files.current) is not self._sent:
            before, self._sent = self._sent, current
            for opened in self._open if before is not None else ():
                self._send_roots(opened, current)

    def _end_revoked(self) -> None:
        revoked = self._admission.revoked()
        for opened in list(self._open):
            if reason := self._admission.refusal(opened.node):
                log.warning("stream ended: %s", reason)
                refused = node_pb2.Refused(reason=sanitize_text(reason))
                opened.stream.end_with(node_pb2.NodeOrder(refused=refused))
                asyncio.get_running_loop().call_later(CANCEL_S, opened.task.cancel)
        for name in revoked:
            if name not in self._lost:
                self._lose(NodeName(name), REVOKED)
        self._lost = set(revoked)

    def _send_roots(self, opened: _OpenStream, tls: ServerTls) -> None:
        certificates = node_pb2.Certificates(
            roots=tls.roots, renew=self._has_other_issuer(opened.newest, tls)
        )
        opened.stream.send(node_pb2.NodeOrder(certificates=certificates))

    async def _in_thread(self, work: Callable[..., T], *args: Any) -> T:
        """Run a function in a thread, because it writes files; return its result.

        The thread runs one such call at a time.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    def _has_other_issuer(self, node: CertifiedNode, tls: ServerTls) -> bool:
        return issuer_of(node.certificate) != key_id_of(tls.identity.issuer)

    async def _renew(self, opened: _OpenStream, request: bytes) -> None:
        answer = node_pb2.Certificates(roots=self._files.current.roots)
        try:
            opened.newest, answer.certificate = await self._in_thread(
                self._issue, opened.node, request
            )
            log.info("node %s: certificate renewed", opened.node.name)
        except (PliantError, OSError) as error:
            reason = f"the certificate of node {opened.node.name} is not renewed: {error}"
            self._warnings.warning("%s", reason, kind=opened.node.name)
            answer.refusal = sanitize_text(reason)
        if opened in self._open:
            opened.stream.send(node_pb2.NodeOrder(certificates=answer))

    def _issue(self, node: CertifiedNode, request: bytes) -> tuple[CertifiedNode, bytes]:
        """Issue a new certificate to a node.

        This is called in another thread, because it writes a file.

        Returns:
            The node with its new certificate, and the certificate chain in PEM form.

        Raises:
            PliantError, OSError: the request is refused, or the files cannot be used.
        """
        now, tls = self._clock(), self._files.current
        early = renew_at(node.certificate) - authority.MAX_CLOCK_SKEW_S - now
        # Otherwise a node could have the server sign and write all the time.
        if early > 0 and not self._has_other_issuer(node, tls):
            raise CertificateError(f"it is not due for {early:.0f} s")
        if reason := self._admission.refusal(node):
            raise CertificateError(reason)
        identity = Identity(tls.identity.cluster, Role.NODE, node.name)
        issuer = load_issuer(self._files.directory)
        chain = authority.issue(issuer, request, identity, now=now)
        self._admission.nodes.add_certificate(node.name, chain[0], replaces=node.serial, now=now)
        log.debug("node %s: new certificate until %.0f", node.name, ends_at(chain[0]))
        return replace(node, certificate=chain[0]), format_certificates(chain).encode("ascii")

    def _confirm(self, node: CertifiedNode) -> None:
        try:
            self._admission.nodes.confirm(node.name, node.serial)
        except (PliantError, OSError) as error:
            log.warning("node %s: its earlier certificates stay listed: %s", node.name, error)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
