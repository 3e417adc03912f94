"""Which account is at the other end of a unix socket, as the kernel knows it."""

from __future__ import annotations

import socket
import struct

_UCRED = struct.Struct("3i")


def peer_uid(connection: socket.socket) -> int:
    """Return the user id of the process at the other end of a unix socket.

    The kernel stores it when the connection is made: for a client, the account of the listening
    process; for a server, of the connecting process.
    """
    return peer_process(connection)[1]


def peer_process(connection: socket.socket) -> tuple[int, int]:
    """Return the process id and the user id of the other end of a unix socket.

    The kernel recorded both when the other side connected; see `peer_uid`.
    """
    pid, uid, _ = _UCRED.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    )
    return pid, uid
