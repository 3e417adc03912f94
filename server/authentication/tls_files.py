"""The server's keys and certificates for TLS, read again when their files change.

Certificates are renewed, and a root is replaced, while the server runs. gRPC asks for the present
certificates at the start of each handshake.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from pliant.core.support.base_error import PliantError
from pliant.protos.identity import cluster_files
from pliant.protos.identity.authority import DAY_S
from pliant.protos.identity.certificates import check_time, ends_at, renew_at
from pliant.protos.identity.cluster_files import ClusterIdentity
from pliant.protos.identity.identity_errors import CertificateTimeError

log = logging.getLogger(__name__)

#: The state of files by which a change is noticed.
_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The certificates that the server shows to its peers, and the roots that it trusts."""

    identity: ClusterIdentity
    #: In PEM form, as gRPC takes them.
    key: bytes = field(repr=False)
    certificates: bytes
    roots: bytes

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """Return the certificates in the form that gRPC expects."""
        return grpc.ssl_server_certificate_configuration(
            [(self.key, self.certificates)], self.roots
        )


class TlsFiles:
    """The identity of the cluster as last read from disk. May be used by any thread."""

    def __init__(self, directory: Path) -> None:
        """Read the server's keys and certificates from ``directory``.

        Raises:
            StoredIdentityError: a file is missing or damaged.
            UntrustedPathError: another account could read or change a file.
            OSError: a file cannot be read.
        """
        self.directory = directory
        self._lock = threading.Lock()
        self._stamp = self._read_stamp()
        self._current = self._read()

    @property
    def current(self) -> ServerTls:
        """Return the content of the files as last read successfully."""
        with self._lock:
            self._refresh()
            return self._current

    def credentials(
        self, *, clients_have_certificates: bool, on_handshake: Callable[[], None] | None = None
    ) -> grpc.ServerCredentials:
        """Return gRPC credentials for a port; they change when the files change.

        Args:
            clients_have_certificates: whether TLS refuses clients without a certificate of this
                cluster, before any message is read.
            on_handshake: is called at the start of each handshake, by a thread of gRPC.
        """
        shown = self.current

        def changed() -> Any:  # None, which the stubs forbid, keeps the present certificates
            nonlocal shown
            if on_handshake is not None:
                on_handshake()
            if (current := self.current) is shown:
                return None
            shown = current
            return current.configuration()

        return grpc.dynamic_ssl_server_credentials(
            shown.configuration(), changed, clients_have_certificates
        )

    def problems(self, now: float) -> list[str]:
        """Return a sentence for each certificate in use that is not valid now or expires soon.

        The server's own certificate and that of its issuing authority are checked.

        Args:
            now: the present time, in seconds since the epoch.
        """
        identity = self.current.identity
        found = []
        for what, certificate in (
            ("the server's certificate", identity.server[0]),
            ("the certificate of the issuing authority", identity.issuer),
        ):
            try:
                check_time(certificate, what, now)
            except CertificateTimeError as error:
                found.append(f"{error}; to renew it: `pliant cluster renew`")
                continue
            if now >= renew_at(certificate):
                days = (ends_at(certificate) - now) / DAY_S
                found.append(f"{what} ends in {days:.0f} days: run `pliant cluster renew`")
        return found

    def _refresh(self) -> None:
        try:
            stamp = self._read_stamp()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._current = self._read()
            log.info("the certificates of the cluster have changed")
        except (PliantError, OSError) as error:
            # A command may be replacing several files. The next change is looked at again.
            log.warning("changed certificates are not used: %s", error)

    def _read_stamp(self) -> _Stamp:
        found = [(self.directory / name).stat() for name in cluster_files.WATCHED]
        return tuple((each.st_mtime_ns, each.st_ino, each.st_size) for each in found)

    def _read(self) -> ServerTls:
        # All files are read once: a command may replace them between two reads.
        contents = cluster_files.read_identity_files(self.directory)
        return ServerTls(
            identity=cluster_files.parse_identity(self.directory, contents),
            key=contents[cluster_files.SERVER_KEY],
            certificates=contents[cluster_files.SERVER],
            roots=contents[cluster_files.ROOTS],
        )
