"""Decide whether a host becomes a node, and issue its certificate."""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pliant.core.support.base_error import PliantError
from pliant.protos.identity import authority, cluster_files
from pliant.protos.identity.admitted_nodes import AGENTS_FILE, AdmittedNodes
from pliant.protos.identity.admitted_nodes import FILE as ADMITTED_FILE
from pliant.protos.identity.certificate_names import Identity, Role
from pliant.protos.identity.certificates import (
    ends_at,
    format_certificates,
    key_fingerprint,
    renew_at,
)
from pliant.protos.identity.identity_errors import JoinTokenError
from pliant.protos.node_joining.messages import Greeting, JoinAnswer, decode_request
from pliant.protos.node_joining.token_store import FILE as TOKEN_FILE
from pliant.protos.node_joining.token_store import StoredToken, TokenStore

log = logging.getLogger(__name__)


class Admission:
    """Admits hosts that have a join token. Used by one thread.

    Args:
        directory: the directory of the cluster's identity. Its files may be replaced while the
            server runs.
        servers: returns the addresses, as HOST:PORT, at which the server listens for nodes or for
            login agents. Its arguments are the address at which a host has reached the server, and
            the role that the host will have.
        clock: returns seconds since the epoch.

    Raises:
        StoredIdentityError, UntrustedPathError, OSError: the identity cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        servers: Callable[[str, Role], Sequence[str]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory, self._servers, self._clock = directory, servers, clock
        self._tokens = TokenStore(directory / TOKEN_FILE)
        #: Those who have joined, by their roles.
        self._admitted = {
            Role.NODE: AdmittedNodes(directory / ADMITTED_FILE),
            Role.LOGIN_AGENT: AdmittedNodes(directory / AGENTS_FILE, role=Role.LOGIN_AGENT),
        }
        self._seen = self._times()
        self._load()

    def refresh(self) -> None:
        """Read the certificates again, which may have been renewed.

        If they cannot be read, that is logged and the earlier ones stay in use.
        """
        times = self._times()
        if times == self._seen:
            return
        self._seen = times
        try:
            self._load()
        except (PliantError, OSError) as error:
            log.error("the certificates for joining nodes stay as they were: %s", error)

    def ending_soon(self) -> list[str]:
        """Return log lines about certificates of the server that should be renewed."""
        now, lines = self._clock(), []
        for what, certificate, command in (
            ("the root", self._identity.roots[-1], "pliant cluster roll-over start"),
            ("the issuing authority", self._identity.issuer, "pliant cluster renew"),
            ("the server", self._identity.server[0], "pliant cluster renew"),
        ):
            if now >= renew_at(certificate):
                days = (ends_at(certificate) - now) / authority.DAY_S
                when = f"ends in {days:.0f} days" if days > 0 else "has ended"
                lines.append(f"the certificate of {what} {when}: run `{command}`")
        return lines

    @property
    def context(self) -> ssl.SSLContext:
        """Return the TLS settings of the listener."""
        return self._context

    def greeting(self) -> bytes:
        """Return the line that the server sends first to every connecting host."""
        return Greeting(
            self._identity.cluster, self._clock(), self._roots, self._certificates
        ).encode()

    def admit(self, line: bytes, peer: str, reached: str) -> bytes:
        """Decide on the request of a host to join; return the answer, with the host's certificate.

        The token counts as used only after the host was added to the list of nodes.

        Args:
            line: the request.
            peer: the address of the host, for the log.
            reached: the address of the server at which the request has arrived.

        Raises:
            JoinError: the request cannot be read.
            SigningRequestError: the signing request in it is wrong.
            JoinTokenError: the token is unknown, was used, or has expired.
            CertificateError: the server's certificates do not allow it now.
            StoredIdentityError, UntrustedPathError, OSError: a file of the server is unusable.
        """
        request, now = decode_request(line), self._clock()
        key = key_fingerprint(authority.read_request(request.request))
        contents = cluster_files.read_identity_files(self._directory)
        identity = cluster_files.parse_identity(self._directory, contents)
        issuer = cluster_files.parse_issuer(self._directory, contents)
        with self._tokens.redeem(request.token_id, request.secret, key, now=now) as token:
            role = Role(token.role)
            servers = tuple(self._servers(reached, role))
            if not servers:
                raise JoinTokenError(
                    "this server has no port for login hosts: set `listen_users: HOST:PORT` in its "
                    "configuration and start it again"
                )
            self._check_not_revoked(token)
            chain = authority.issue(
                issuer,
                request.request,
                Identity(identity.cluster, role, token.node),
                now=now,
            )
            self._admitted[role].admit(token.node, token.max_slots, chain[0], now=now)
        again = " again, with the same key" if token.used_by else ""
        log.info("%s %s joined%s, from %s with token %s", role, token.node, again, peer, token.id)
        return JoinAnswer(
            node=token.node,
            certificates=format_certificates(chain).encode("ascii"),
            roots=format_certificates(identity.roots).encode("ascii"),
            order_public_key=contents[cluster_files.ORDER_PUBLIC_KEY],
            servers=servers,
            slots=token.max_slots,
        ).encode()

    def _check_not_revoked(self, token: StoredToken) -> None:
        """Check that a node which has used this token before was not revoked since.

        Raises:
            JoinTokenError: the node was revoked.
        """
        if not token.used_by:
            return
        node = self._admitted[Role(token.role)].find(token.node)
        if node is None or node.revoked_at is not None:
            raise JoinTokenError(
                f"{token.member} was revoked after it joined: ask the administrator for a new "
                "token (`pliant cluster token`)"
            )

    def _load(self) -> None:
        contents = cluster_files.read_identity_files(self._directory)
        identity = cluster_files.parse_identity(self._directory, contents)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0  # nothing is resumed
        _load_into(context, contents[cluster_files.SERVER_KEY] + contents[cluster_files.SERVER])
        self._identity, self._context = identity, context
        self._roots = contents[cluster_files.ROOTS]
        self._certificates = contents[cluster_files.SERVER]

    def _times(self) -> tuple[tuple[int, int], ...]:
        found = []
        for name in cluster_files.WATCHED:
            try:
                at = os.stat(self._directory / name)
            except OSError:
                found.append((0, 0))
            else:
                found.append((at.st_mtime_ns, at.st_ino))
        return tuple(found)


def _load_into(context: ssl.SSLContext, key_and_certificates: bytes) -> None:
    """Make a TLS context use a key and certificates that are in memory.

    Python can load them only from a file, so they are written to one in memory. Reading the stored
    files again could find a new key with an old certificate.
    """
    descriptor = os.memfd_create("pliant-server", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key_and_certificates)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
