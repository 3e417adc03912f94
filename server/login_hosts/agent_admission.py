"""Decide which login agents may forward requests of users, and check the users that they name.

TLS has verified that the cluster has issued the certificate. This module checks that the
certificate is that of a login agent, that the agent is listed and not revoked, and that a user id
means the same user on both hosts.
"""

from __future__ import annotations

import ssl
import time

from cryptography import x509

from pliant.core.support.base_error import PliantError
from pliant.protos.daemons.agent_renewal_messages import RenewalAnswer
from pliant.protos.daemons.login_agent_user import UserAssertion, UserAssertionError
from pliant.protos.daemons.tls import server_context
from pliant.protos.identity import authority
from pliant.protos.identity.admitted_nodes import AGENTS_FILE, AdmittedNodes, serial_of
from pliant.protos.identity.certificate_names import Identity, Role
from pliant.protos.identity.certificates import format_certificates, read_identity, renew_at
from pliant.protos.identity.cluster_files import load_issuer
from pliant.protos.identity.identity_errors import CertificateError
from pliant.server.authentication.tls_files import ServerTls, TlsFiles
from pliant.server.authorisation.user_database import UserAccount


class AgentRefusedError(PliantError):
    """A peer on the port for login hosts is no login agent of this cluster, or is revoked."""


class AgentAdmission:
    """Checks login agents against the list of agents that have joined the cluster.

    A login agent is the daemon on a login host that forwards users' requests.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._agents = AdmittedNodes(files.directory / AGENTS_FILE, role=Role.LOGIN_AGENT)
        self._made_of: ServerTls | None = None
        self._context: ssl.SSLContext | None = None

    @property
    def context(self) -> ssl.SSLContext:
        """Return the TLS settings of the port, with the present certificates of the server."""
        current = self._files.current
        if self._context is None or self._made_of is not current:
            self._context = server_context(current.key, current.certificates, current.roots)
            self._made_of = current
        return self._context

    def renew(self, name: str, certificate: bytes | None, request: bytes) -> RenewalAnswer:
        """Return a new certificate for a login agent. Called in another thread: it writes a file.

        The earlier certificate stays valid until it expires, because the answer may get lost.

        Args:
            name: the name of the agent.
            certificate: the agent's present certificate, in DER form.
            request: its signing request, in PEM form.

        Raises:
            CertificateError: if the present certificate is not due for renewal yet.
            PliantError, OSError: if the request is wrong, or a file cannot be used.
        """
        shown, now = x509.load_der_x509_certificate(certificate or b""), time.time()
        early = renew_at(shown) - authority.MAX_CLOCK_SKEW_S - now
        if early > 0:  # else an agent could have the server sign and write all the time
            raise CertificateError(f"the certificate is not due for {early:.0f} s")
        current = self._files.current
        chain = authority.issue(
            load_issuer(self._files.directory),
            request,
            Identity(current.identity.cluster, Role.LOGIN_AGENT, name),
            now=now,
        )
        self._agents.add_certificate(name, chain[0], replaces=serial_of(shown), now=now)
        return RenewalAnswer(format_certificates(chain).encode("ascii"), current.roots)

    def list_version(self) -> tuple[int, int] | None:
        """Return a value that differs after each change of the file that lists the login agents.

        None if there is no such file.
        """
        try:
            found = (self._files.directory / AGENTS_FILE).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino

    def identify(self, certificate: bytes | None) -> str:
        """Return the name of the login agent to which a certificate belongs.

        Args:
            certificate: the certificate in DER form.

        Raises:
            AgentRefusedError: if no admitted login agent has this certificate.
            StoredIdentityError, UntrustedPathError, OSError: if the list cannot be read.
        """
        if not certificate:
            raise AgentRefusedError("the peer has no certificate")
        try:
            shown = x509.load_der_x509_certificate(certificate)
            identity = read_identity(shown)
        except (ValueError, CertificateError) as error:
            raise AgentRefusedError(f"the certificate of the peer: {error}") from None
        if identity.role is not Role.LOGIN_AGENT:
            raise AgentRefusedError(f"{identity.uri} is not a login agent")
        if identity.cluster != self._files.current.identity.cluster:
            raise AgentRefusedError(f"{identity.uri} belongs to another cluster")
        listed = self._agents.find(identity.name)
        if listed is None:
            raise AgentRefusedError(f"login agent {identity.name} has not joined this cluster")
        if listed.revoked_at is not None:
            raise AgentRefusedError(f"login agent {identity.name} is revoked")
        if not listed.allows(shown):
            raise AgentRefusedError(
                f"login agent {identity.name} uses an old certificate: let it join again"
            )
        return identity.name


def check_same_user(assertion: UserAssertion, account: UserAccount, agent: str) -> None:
    """Check that a user id means the same user on the login host and on this host.

    Args:
        assertion: the user id and name that the login agent has sent.
        account: the account that this host has under this id.
        agent: the name of the login agent, for messages.

    Raises:
        UserAssertionError: if this host does not know the id, or knows it under another name.
    """
    if not account.is_known:
        raise UserAssertionError(
            f"the server's host knows no user with the id {assertion.uid} ({assertion.user!r:.40} "
            f"on {agent}): an administrator must add the user to its user database"
        )
    if account.name != assertion.user:
        raise UserAssertionError(
            f"the user id {assertion.uid} is {assertion.user!r:.40} on {agent}, and "
            f"{account.name!r} on the server's host: an administrator must give each user one id "
            "on all hosts"
        )
