"""A connection to one host over SSH, and commands on it.

Host keys must be known: a key that is unknown or has changed is refused before anything is sent.
"""

from __future__ import annotations

import os
import shlex
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.ssh.target import (
    SSH_PORT,
    SshTarget,
    complete_target,
    find_jumps,
    jump_option,
)

if TYPE_CHECKING:
    from paramiko import Channel, SSHClient

CONNECT = "connect"
_BLOCK = 1 << 15
#: At most this much of each output is kept in memory.
_MAX_OUTPUT = 1 << 22
#: A connection that is lost is noticed after a few of these intervals.
_KEEPALIVE_S = 10
#: The reason of an sshd that forwards no connections (RFC 4254, section 5.1).
_FORWARDING_FORBIDDEN = 1
#: All hosts may have the same jump host, whose sshd by default drops connections when more than
#: ten have not logged in yet (MaxStartups).
_jump_logins = threading.BoundedSemaphore(6)


class HostError(ClientError, code="host-failed"):
    """A step failed on a host; the text names host, step, cause and remedy."""

    def __init__(self, host: str, step: str, cause: str, remedy: str = "") -> None:
        self.host, self.step, self.cause, self.remedy = host, step, cause, remedy
        super().__init__(f"{host}: {step}: {cause}" + (f"; {remedy}" if remedy else ""))


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Exit code and outputs of a command that has ended on a host."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def last_line(self) -> str:
        """Return the last line of stderr, or else of stdout."""
        for output in (self.stderr, self.stdout):
            lines = output.decode("utf-8", "replace").strip().splitlines()
            if lines:
                return lines[-1].strip()
        return ""


class SshSession:
    """An open connection to a host; a context manager."""

    def __init__(
        self, target: SshTarget, client: SSHClient, jumps: Sequence[SSHClient] = ()
    ) -> None:
        """Wrap connections that `connect` has opened: to the host, and to each jump host."""
        self.target = target
        self._client, self._jumps = client, tuple(jumps)

    @property
    def name(self) -> str:
        """Return the name of the host as the user wrote it."""
        return self.target.name

    def __enter__(self) -> SshSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the host and to its jump hosts."""
        _close([*self._jumps, self._client])

    def route(self) -> tuple[str, str]:
        """Return the two addresses of this connection: that of this machine, and that of the host.

        With jump hosts, these are the addresses of the connection to the first jump host.
        """
        transport = [*self._jumps, self._client][0].get_transport()
        if transport is None:
            raise HostError(self.name, CONNECT, "the connection is closed")
        return transport.sock.getsockname()[0], transport.sock.getpeername()[0]

    def run(
        self,
        command: Sequence[str],
        *,
        step: str,
        stdin: bytes | BinaryIO = b"",
        stdout: BinaryIO | None = None,
        timeout_s: float = 60.0,
    ) -> CommandResult:
        """Run a command, wait for its end, and return its exit code and output.

        Args:
            command: the words; the shell of the host does not interpret them.
            step: the purpose of the command, for messages.
            stdin: the input of the command.
            stdout: the file for its output; None to return the output.
            timeout_s: seconds within which the command must end.

        Raises:
            HostError: the connection broke, or the command did not end within ``timeout_s``.
        """
        from paramiko import SSHException

        deadline = time.monotonic() + timeout_s
        try:
            transport = self._client.get_transport()
            if transport is None:
                raise EOFError
            with transport.open_session(timeout=timeout_s) as channel:
                channel.settimeout(timeout_s)
                channel.exec_command(shlex.join(command))
                return _communicate(channel, stdin, stdout, deadline)
        except TimeoutError:
            raise HostError(
                self.name,
                step,
                f"no end within {timeout_s:g} s of `{shlex.join(command)[:200]}`",
                "look at the load and the disks of the host",
            ) from None
        except (SSHException, EOFError, OSError) as error:
            raise HostError(
                self.name,
                step,
                f"the connection broke ({error or type(error).__name__})",
                "try again when the host can be reached",
            ) from None

    def check(self, command: Sequence[str], *, step: str, remedy: str = "", **more: Any) -> bytes:
        """Run a command that must end with exit code 0, and return its output.

        Args:
            command: the words; the shell of the host does not interpret them.
            step: the purpose of the command, for messages.
            remedy: what the user can do if the exit code is not 0, for the message.
            more: further arguments of `run`.

        Raises:
            HostError: the command ended with another code, or `run` raised the error.
        """
        done = self.run(command, step=step, **more)
        if done.code:
            words = f"`{shlex.join(command)[:200]}` ended with {done.code}"
            cause = f"{words}: {done.last_line}" if done.last_line else words
            raise HostError(self.name, step, cause, remedy)
        return done.stdout


def _communicate(
    channel: Channel, stdin: bytes | BinaryIO, stdout: BinaryIO | None, deadline: float
) -> CommandResult:
    """Send the input, read both outputs at the same time, and return the result of the command.

    If one output were not read, the command would stop when the window of the channel is full.

    Args:
        channel: the channel on which the command runs.
        stdin: the input.
        stdout: the file for the output; None to return the output.
        deadline: the time by which the command must have ended, on the monotonic clock.
    """
    outputs = [bytearray(), bytearray()]
    failures: list[BaseException] = []

    def read(receive: Any, kept: bytearray, file: BinaryIO | None) -> None:
        try:
            while block := receive(_BLOCK):
                if file is not None:
                    file.write(block)
                elif len(kept) < _MAX_OUTPUT:
                    kept += block
        except (OSError, ValueError) as error:
            failures.append(error)

    readers = [
        threading.Thread(target=read, args=(channel.recv, outputs[0], stdout), daemon=True),
        threading.Thread(target=read, args=(channel.recv_stderr, outputs[1], None), daemon=True),
    ]
    for reader in readers:
        reader.start()
    with suppress(OSError):  # the command has ended before it read all: its code tells
        _send(channel, stdin)
    channel.shutdown_write()
    for reader in readers:
        reader.join(max(0.0, deadline - time.monotonic()))
        if reader.is_alive():
            raise TimeoutError
    if failures:
        raise failures[0]
    if not channel.status_event.wait(max(0.0, deadline - time.monotonic())):
        raise TimeoutError
    code = channel.recv_exit_status()
    if code == -1:
        raise EOFError("the command ended without a code")
    return CommandResult(code, bytes(outputs[0]), bytes(outputs[1]))


def _send(channel: Channel, stdin: bytes | BinaryIO) -> None:
    if isinstance(stdin, bytes):
        channel.sendall(stdin)
        return
    while block := stdin.read(_BLOCK):
        channel.sendall(block)


def connect(target: SshTarget, *, timeout_s: float = 10.0) -> SshSession:
    """Return a session with a host whose key is known.

    Raises:
        HostError: the host cannot be reached, its key is unknown or has changed, or it does not
            accept the user.
    """
    try:
        import paramiko  # noqa: F401  # imported to find out whether it is installed
    except ImportError:
        raise ClientError(
            "hosts are reached with paramiko, which is not installed: "
            "`pip install 'pliant[deploy]'`"
        ) from None
    completed = complete_target(target)
    try:
        hops = [*find_jumps(target), completed]
    except UsageError as error:
        remedy = "correct ~/.ssh/config or the jump hosts that you named"
        raise HostError(target.name, CONNECT, str(error), remedy) from None
    clients: list[SSHClient] = []
    try:
        for number, hop in enumerate(hops):
            with nullcontext() if hop is completed else _jump_logins:
                clients.append(_connect_hop(hop, hops[:number], clients, timeout_s))
    except BaseException as error:
        _close(clients)
        if isinstance(error, HostError) and (jump := hops[len(clients)]) is not completed:
            cause = f"jump host {jump.name}: {error.cause}"
            raise HostError(target.name, error.step, cause, error.remedy) from None
        raise
    return SshSession(completed, clients[-1], clients[:-1])


def _close(clients: Sequence[SSHClient]) -> None:
    """Close connections in reverse order, because each one is tunnelled through those before it."""
    for client in reversed(clients):
        client.close()


def _connect_hop(
    hop: SshTarget, before: Sequence[SshTarget], clients: Sequence[SSHClient], timeout_s: float
) -> SSHClient:
    """Return a connection to the next jump host, or to the host itself after the last jump host.

    Args:
        hop: the host to connect to.
        before: the jump hosts on the way to this host.
        clients: the open connections to these jump hosts.
        timeout_s: seconds within which each part of the login must be done.
    """
    from paramiko import SSHClient

    if hop.key_file and not os.path.exists(hop.key_file):
        raise HostError(
            hop.name, CONNECT, f"there is no key file {hop.key_file}", "name another one"
        )
    client = SSHClient()
    try:
        _load_known_hosts(client, hop)
        channel = _open_channel(hop, before[-1], clients[-1], timeout_s) if before else None
        _connect(client, hop, before, channel, timeout_s)
    except BaseException:
        client.close()
        raise
    return client


def _open_channel(hop: SshTarget, jump: SshTarget, client: SSHClient, timeout_s: float) -> Channel:
    """Let a jump host connect to the next host, and return the connection."""
    from paramiko import ChannelException, SSHException

    where = f"{hop.host}:{hop.port}"
    try:
        transport = client.get_transport()
        if transport is None:
            raise EOFError
        return transport.open_channel(
            "direct-tcpip", (hop.host, hop.port), ("127.0.0.1", 0), timeout=timeout_s
        )
    except ChannelException as error:
        if error.code == _FORWARDING_FORBIDDEN:
            cause = f"the jump host {jump.name} does not allow connections to {where}"
            remedy = f"set AllowTcpForwarding in the configuration of the sshd of {jump.name}"
            raise HostError(hop.name, CONNECT, cause, remedy) from None
        cause = f"the jump host {jump.name} cannot connect to {where}: {error.text}"
    except (SSHException, EOFError, OSError) as error:
        cause = f"the connection to the jump host {jump.name} broke"
        if "timeout" in str(error).lower():
            cause = f"the jump host {jump.name} did not connect to {where} within {timeout_s:g} s"
    raise _unreachable(hop.name, cause)


def _load_known_hosts(client: SSHClient, target: SshTarget) -> None:
    if target.known_hosts:
        try:
            client.load_system_host_keys(target.known_hosts)
        except OSError as error:
            raise HostError(
                target.name,
                CONNECT,
                f"known hosts: {target.known_hosts}: {error.strerror}",
                "name another file",
            ) from None
        return
    client.load_system_host_keys()  # of the user; it need not exist
    with suppress(OSError):
        client.load_system_host_keys("/etc/ssh/ssh_known_hosts")


def _connect(
    client: SSHClient,
    target: SshTarget,
    before: Sequence[SshTarget],
    channel: Channel | None,
    timeout_s: float,
) -> None:
    """Log in to a host, with ``client``.

    Args:
        client: the SSH client, which is not connected yet.
        target: the host.
        before: the jump hosts on the way to this host.
        channel: the connection that the last jump host has opened to this host; None without
            jump hosts.
        timeout_s: seconds within which each part of the login must be done.
    """
    from paramiko import AuthenticationException, BadHostKeyException, RejectPolicy, SSHException

    client.set_missing_host_key_policy(RejectPolicy())
    where, name = f"{target.user}@{target.host}:{target.port}", target.name
    known = target.host if target.port == SSH_PORT else f"[{target.host}]:{target.port}"
    port = "" if target.port == SSH_PORT else f" -p {target.port}"
    jumps = f" -J {jump_option(before)}" if before else ""
    by_hand = f"ssh{jumps}{port} {target.user}@{target.host}"
    try:
        client.connect(
            target.host,
            target.port,
            target.user,
            key_filename=target.key_file or None,
            # A key that the user names is the only one: with more, the host may count failures.
            allow_agent=not target.key_file,
            look_for_keys=not target.key_file,
            timeout=timeout_s,
            sock=channel,
            banner_timeout=timeout_s,
            auth_timeout=timeout_s,
        )
    except BadHostKeyException as error:
        raise HostError(
            name,
            CONNECT,
            f"the host key has changed: it is {error.key.get_name()} {error.key.fingerprint}, "
            f"known is {error.expected_key.fingerprint}; nothing was sent",
            f"if the host was installed again, remove the old key with `ssh-keygen -R '{known}'` "
            f"and connect once with `{by_hand}`; else somebody may be intercepting the connection",
        ) from None
    except AuthenticationException as error:
        raise HostError(
            name,
            "log in",
            f"the host does not accept the key of {target.user} ({error})",
            f"make `{by_hand}` work without a password: `ssh-copy-id`, or load the key into an "
            "agent with `ssh-add`",
        ) from None
    except SSHException as error:
        _raise_ssh_error(error, name, where, by_hand, timeout_s)
    except (TimeoutError, EOFError) as error:
        cause = "no answer" if isinstance(error, TimeoutError) else "the connection was closed"
        raise _unreachable(name, f"{cause} from {where} within {timeout_s:g} s") from None
    except socket.gaierror:
        raise HostError(
            name, CONNECT, f"there is no host {target.host}", "correct the name"
        ) from None
    except OSError as error:
        cause = "nothing listens there" if getattr(error, "errors", None) else str(error.strerror)
        raise _unreachable(name, f"{where}: {cause}") from None
    transport = client.get_transport()
    if transport is not None:
        transport.set_keepalive(_KEEPALIVE_S)
        if channel is None:
            # paramiko leaves Nagle's algorithm on, which delays each command by 40 ms.
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _raise_ssh_error(
    error: Exception, name: str, where: str, by_hand: str, timeout_s: float
) -> None:
    text = str(error)
    if "known_hosts" in text:
        raise HostError(
            name,
            CONNECT,
            "its host key is not known",
            f"connect once with `{by_hand}` and compare the fingerprint with that of the host",
        ) from None
    if "authentication methods" in text or "private key" in text:
        raise HostError(name, "log in", text, f"make `{by_hand}` work without a password") from None
    if "banner" in text.lower():
        raise _unreachable(
            name, f"{where} accepts connections but does not speak SSH within {timeout_s:g} s"
        ) from None
    raise _unreachable(name, f"{where}: {text or type(error).__name__}") from None


def _unreachable(name: str, cause: str) -> HostError:
    return HostError(name, CONNECT, cause, "start the host and its sshd, or leave the host out")
