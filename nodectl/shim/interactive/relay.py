"""Connect a rank's input, or its terminal, with the ``pliant run`` that submitted the job.

The process that will execute the program calls `attach`. It connects first, so a program never
starts without its input. Then it leaves the connection to a separate process, the relay. The relay
must not be a child of the program, which may wait for all its children. The shim adopts the relay,
and ends it with all other processes of the job.

The relay holds the other end of the program's pipe or terminal. So if ``pliant run`` ends, the
program reads the end of its input, or gets SIGHUP because its terminal is closed.
"""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import socket
import struct
import termios
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from pliant.protos.interactive.byte_pump import BytePump, FrameError
from pliant.protos.interactive.session_address import SessionAddress, keep_alive

#: Seconds that the last output may take to reach ``pliant run``. The shim kills the processes that
#: a program leaves behind after two seconds anyway.
_FLUSH_S = 2.0


class AttachError(OSError):
    """The input or terminal of a rank is not available; the text is for the user."""


def attach(folder: str, cpus: Iterable[int]) -> tuple[int, bool]:
    """Connect this process to ``pliant run``, which waits for it, and start the relay.

    Args:
        folder: the folder of the session.
        cpus: the CPUs on which the relay may run.

    Returns:
        The descriptor of the program's input or terminal, and whether it is a terminal.

    Raises:
        AttachError: ``pliant run`` cannot be reached, or no pipe, terminal or process can be made.
    """
    try:
        address = SessionAddress.read(Path(folder))
        link = address.connect(Path(folder))
    except (OSError, ValueError, TypeError, KeyError) as error:
        text = getattr(error, "strerror", None) or error
        raise AttachError(f"cannot reach `pliant run`: {text}; does it still run?") from error
    try:
        ours, theirs = pty.openpty() if address.terminal else _pipe()
        if address.terminal:
            set_size(theirs, address.rows, address.columns)
        relay = os.fork()
        if relay == 0:
            _run_relay(link, ours, address.terminal, cpus)
        os.waitpid(relay, 0)
    except OSError as error:
        what = "terminal" if address.terminal else "input"
        raise AttachError(f"cannot make its {what}: {error.strerror}") from error
    os.close(ours)
    link.close()
    return theirs, address.terminal


def take_terminal(handle: int) -> None:
    """Make a terminal the controlling one of this process, so that Ctrl-C reaches it.

    The process must lead its session.
    """
    fcntl.ioctl(handle, termios.TIOCSCTTY, 0)


def set_size(handle: int, rows: int, columns: int) -> None:
    """Set the size of a terminal; its foreground processes get SIGWINCH if it changes."""
    with suppress(OSError):
        fcntl.ioctl(handle, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _pipe() -> tuple[int, int]:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    return writer, reader


def _run_relay(link: socket.socket, ours: int, is_terminal: bool, cpus: Iterable[int]) -> NoReturn:
    """Fork the relay from this process, which then exits; the relay passes bytes on until the end.

    Because of the second fork, the relay is no child of the program.

    Args:
        link: the connection to ``pliant run``.
        ours: the descriptor of our end of the program's pipe or terminal.
        is_terminal: whether it is a terminal.
        cpus: the CPUs on which the relay may run.
    """
    try:
        if os.fork():
            os._exit(0)  # the shim adopts the relay
        os.setsid()
        _close_others({link.fileno(), ours})
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            # The relay ends with the program, after the last output. The shim waits for this, and
            # kills the relay if it takes too long.
            signal.signal(number, signal.SIG_IGN)
        with suppress(OSError):
            os.sched_setaffinity(0, cpus)
        os.set_blocking(ours, False)
        keep_alive(link)
        pump = BytePump(
            link,
            ours if is_terminal else None,
            ours,
            on_size=lambda rows, columns: set_size(ours, rows, columns),
        )
        with suppress(OSError, FrameError):
            pump.run()
        os.close(ours)
        _finish(link)
    finally:
        os._exit(0)


def _close_others(kept: set[int]) -> None:
    """Close all descriptors of the relay except ``kept``.

    Some of them are ends of pipes and sockets that the shim reads until every copy is closed.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    for handle in [int(name) for name in os.listdir("/proc/self/fd")]:
        if handle > 2 and handle not in kept:
            with suppress(OSError):
                os.close(handle)


def _finish(link: socket.socket) -> None:
    """Close the connection once ``pliant run`` has read everything.

    If a connection is closed while received bytes are unread, the last sent bytes are lost.
    """
    link.settimeout(_FLUSH_S)
    with suppress(OSError):
        link.shutdown(socket.SHUT_WR)
        while link.recv(1 << 16):
            pass
    link.close()
