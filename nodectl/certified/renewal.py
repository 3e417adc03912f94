"""Replace the certificate of a node while it runs, and the roots that it trusts.

The node makes a new key and a signing request after half of the certificate's life. The server
signs a request only for the node on whose stream it arrives. The new certificate is used for the
next connection, so the node connects again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from pliant.core.support.base_error import PliantError
from pliant.protos import node_pb2 as wire
from pliant.protos.identity import authority, keys
from pliant.protos.identity.certificates import parse_certificates, renew_at
from pliant.protos.identity.node_files import (
    NodeIdentity,
    load_node_identity,
    replace_certificate,
    replace_roots,
)
from pliant.protos.identity.trust_bundle import parse_bundle

logger = logging.getLogger("pliant.nodectl")

#: Seconds before a request without an answer, or one that was refused, is repeated.
RETRY_S = 60.0


class CertificateRenewal:
    """Requests a new certificate when it is due, and saves the one that the server sends."""

    def __init__(
        self,
        directory: Path,
        send: Callable[[wire.NodeReport], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare the renewal.

        Args:
            directory: the directory of the node's identity.
            send: sends a report to the server.
            clock: returns seconds since the epoch.
        """
        self._directory, self._send, self._clock = directory, send, clock
        self._key = b""
        self._due_at = float("-inf")
        self._asked_at = float("-inf")

    def begin(self, identity: NodeIdentity) -> None:
        """Start to watch the lifetime of the certificate with which this node has now connected."""
        self._due_at = renew_at(identity.chain[0])
        self._asked_at = float("-inf")

    def ask_if_due(self) -> None:
        """Send a signing request for a new key if a renewal is due.

        It is due when half of the certificate's life has passed, or when the server has demanded
        it. After a request, none is sent for ``RETRY_S`` seconds.
        """
        now = self._clock()
        if now < self._due_at or now < self._asked_at + RETRY_S:
            return
        self._asked_at = now
        key = keys.create_certificate_key()
        self._key = keys.format_private_key(key).encode("ascii")
        request = wire.RenewCertificate(signing_request=authority.create_request(key))
        logger.info("asking the server for a new certificate")
        self._send(wire.NodeReport(renew_certificate=request))

    def save_certificates(self, sent: wire.Certificates) -> NodeIdentity | None:
        """Save a new certificate, or new roots, that the server has sent.

        Returns:
            The new identity of the node; None if nothing has changed.
        """
        if sent.refusal:
            logger.warning("the server: %s", sent.refusal)
        if sent.renew:
            self._due_at = float("-inf")
            self.ask_if_due()
        try:
            return self._save(sent)
        except (PliantError, OSError) as error:
            logger.error("what the server has sent is not used: %s", error)
            return None

    def _save(self, sent: wire.Certificates) -> NodeIdentity | None:
        now, roots = self._clock(), parse_bundle(sent.roots)
        if sent.certificate and self._key:
            chain = parse_certificates(sent.certificate)
            changed = replace_certificate(self._directory, self._key, chain, roots, now=now)
            self._key, self._due_at = b"", renew_at(chain[0])
            logger.info("the certificate of this node is renewed")
            return changed
        if roots != load_node_identity(self._directory).bundle:
            changed = replace_roots(self._directory, roots, now=now)
            logger.info("the roots that this node trusts have changed")
            return changed
        return None
