"""The session of an interactive job, which gets its input or terminal from this process.

A process of the job connects to this process (`pliant.protos.interactive.session_address`). If the
job is started again, a process of the new run connects, and reads the input that was not read yet.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pliant.client.run.raw_terminal import RawTerminal, may_read
from pliant.protos.interactive.byte_pump import BytePump, FrameError
from pliant.protos.interactive.session_address import HOST_NAME, SessionAddress, keep_alive

#: Maximum number of connections that have not yet proved that they belong to the job.
_MAX_UNPROVEN = 8
#: Seconds to wait for the last output after the job has ended.
_LAST_OUTPUT_S = 5.0
#: How much the clocks of the nodes may be behind, seconds.
_MAX_SKEW_S = 86_400.0
#: How long the certificate of a session is valid: longer than any job waits and runs.
_LIFETIME_S = 366 * 86_400.0


class Session:
    """Passes input or a terminal of this process to an interactive job, until the job has ended."""

    def __init__(self, folder: Path, *, has_terminal: bool, is_local: bool) -> None:
        """Listen for a process of the job.

        Args:
            folder: an empty folder that only this user can read, and that the nodes share.
            has_terminal: whether the program gets a terminal. Otherwise it gets only an input.
            is_local: whether all nodes are on this host; then a unix socket is used and no port.
        """
        self._has_terminal = has_terminal
        #: Whether this process's output was closed, so that nobody sees the program's output.
        self.output_is_closed = False
        self._folder = folder
        self._terminal = RawTerminal() if has_terminal else None
        self._pump: BytePump | None = None
        self._serving = threading.Lock()
        self._unproven = threading.BoundedSemaphore(_MAX_UNPROVEN)
        address = SessionAddress(has_terminal)
        if self._terminal is not None:
            rows, columns = self._terminal.size()
            address = replace(address, rows=rows, columns=columns)
        if is_local:
            self._listener = address.listen(folder)
        else:
            self._listener = _listen_to_hosts()
            key, certificate = create_identity()
            address = replace(
                address,
                addresses=_addresses(),
                port=self._listener.getsockname()[1],
                key=key,
                certificate=certificate,
            )
        self._address = address
        address.write(folder)
        threading.Thread(target=self._accept, name="session", daemon=True).start()

    def close(self) -> None:
        """Wait until the last output of the program was passed on, and restore the terminal."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends the thread that waits there
        self._listener.close()
        if self._terminal is not None:
            if self._serving.acquire(timeout=_LAST_OUTPUT_S):
                self._serving.release()
            self._terminal.restore()

    # ------------------------------------------------------------------ threads

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return  # it is closed
            if not self._unproven.acquire(blocking=False):
                link.close()
                continue
            threading.Thread(target=self._serve, args=[link], name="input", daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        try:
            proven = self._address.accept(link)
        except OSError:
            link.close()
            return
        finally:
            self._unproven.release()
        keep_alive(proven)
        with self._serving, proven:
            self._pass_on(proven)

    def _pass_on(self, link: socket.socket) -> None:
        terminal = self._terminal
        self._pump = pump = BytePump(link, 0, 1 if terminal else None, may_read=may_read)
        if terminal is not None:
            terminal.make_raw(lambda: pump.resize(*terminal.size()))
        try:
            pump.run()
        except FrameError:
            pass  # only a process of the user could send this, to its own harm
        except OSError:
            self.output_is_closed = True
        finally:
            if terminal is not None:
                terminal.restore()


def _listen_to_hosts() -> socket.socket:
    """Return a socket that listens on all addresses of this host, at any free port."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _addresses() -> tuple[str, ...]:
    """Return the addresses of this host at which a process of the job tries to connect, in order.

    Loopback addresses come first. On another host they fail: nobody listens there, or the
    certificate of the listener is wrong.
    """
    import psutil  # imported here, because a cluster on one host does not need it

    found = {
        each.address
        for addresses in psutil.net_if_addrs().values()
        for each in addresses
        if each.family in (socket.AF_INET, socket.AF_INET6)
        and "%" not in each.address  # of one link only
    }
    return tuple(sorted(found, key=lambda text: (not _is_loopback(text), ":" in text, text)))


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def create_identity() -> tuple[str, str]:
    """Return a new key and the certificate for it, in PEM form."""
    from datetime import UTC, datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import NameOID

    from pliant.protos.identity import keys

    key = keys.create_certificate_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST_NAME)])
    now = time.time()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(now - _MAX_SKEW_S, UTC))
        .not_valid_after(datetime.fromtimestamp(now + _LIFETIME_S, UTC))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST_NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return keys.format_private_key(key), certificate.public_bytes(Encoding.PEM).decode("ascii")
