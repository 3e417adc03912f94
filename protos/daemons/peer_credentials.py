"""Ask the kernel which account is at the other end of a unix socket."""

from __future__ import annotations

import _socket
import sys

#: Bytes of each of the three numbers that the kernel stores: of process, user and group.
_INT = 4


def peer_uid(connection: _socket.socket) -> int:
    """Return the user id of the process at the other end of a unix socket.

    The kernel stores it when the connection is made: for a client, the account of the listening
    process; for a server, of the connecting process.
    """
    return peer_process(connection)[1]


def peer_process(connection: _socket.socket) -> tuple[int, int]:
    """Return the process id and the user id of the other end of a unix socket.

    The kernel recorded both when the connection was made; see `peer_uid`. Commands call this
    function. It imports neither `socket` nor `struct`, so that they start sooner.
    """
    stored = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 3 * _INT)
    pid, uid = (
        int.from_bytes(stored[at : at + _INT], sys.byteorder, signed=True) for at in (0, _INT)
    )
    return pid, uid
