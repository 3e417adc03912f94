"""The users' socket of the server: connect to it, encode requests, decode answers, explain errors.

`connection` and `async_connection` add the two ways to wait for the answers. Standard library only.
"""

from __future__ import annotations

import json
import os

from pliant.client.client_errors import (
    LostServerError,
    NoServerError,
    RequestError,
    SilentServerError,
    UntrustedServerError,
)
from pliant.client.paths import SOCKET
from pliant.client.site_settings import ACCOUNT_VARIABLE, SITE_FILE, trusted_accounts
from pliant.core.support.input_limits import MAX_REQUEST_BYTES
from pliant.protos.daemons.peer_credentials import peer_uid
from pliant.protos.daemons.private_paths import PrivateSocket, UntrustedPathError

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    import _socket  # the base of `socket.socket`
    from typing import Any

#: Seconds to wait for the answer to an ordinary request.
TIMEOUT_S = 30.0

#: Wait for an answer without a limit.
UNLIMITED = float("inf")

#: The server sends a message of a subscription at least every 10 s. After this time, seconds, the
#: connection counts as lost.
SILENCE_S = 45.0

#: Seconds between attempts to connect while the queue of the server's socket is full.
RETRY_S = 0.05

#: Requests that change nothing and can therefore be repeated.
_READS = {
    *("accounting", "audit", "history", "jobs", "nodes", "query", "refusals", "shares"),
    *("snapshot", "starts", "wait", "watch", "why"),
}

#: How to name another account that may run the server.
_TRUST = (
    f"if that account runs the server of this host, name it in {ACCOUNT_VARIABLE}, or let root "
    f"write `server_user: ACCOUNT` into {SITE_FILE}"
)

Answer = dict[str, "Any"]


def socket_path(directory: str) -> str:
    """Return the path of the users' socket in a run folder."""
    return os.path.join(directory, SOCKET)


def connect(link: _socket.socket, directory: str) -> bool:
    """Connect a unix socket to the server, once; return whether it is connected.

    The result is False if the server's queue of new connections is full. The caller then tries
    again after `RETRY_S`.

    Args:
        link: a socket that does not block, or has a timeout.
        directory: the run folder of the server.

    Raises:
        UntrustedServerError: another account owns the socket, its folder or the process that
            listens.
        OSError: there is no server.
    """
    trusted = trusted_accounts()
    full_path = socket_path(directory)
    with PrivateSocket(full_path, shared=True, owners=trusted) as path:
        try:
            link.connect(path)
        except BlockingIOError:
            return False
    if (uid := peer_uid(link)) not in trusted:
        raise UntrustedServerError(
            f"the process that listens on {full_path} runs as the user with id {uid}, "
            f"which this user does not trust: nothing was sent; {_TRUST}"
        )
    return True


def encode(op: str, fields: dict[str, Any]) -> bytes:
    """Return a request as a line of JSON."""
    return json.dumps({"op": op, **fields}, separators=(",", ":")).encode("ascii") + b"\n"


def check_length(line: bytes) -> None:
    """Check that a request is not longer than the server accepts.

    Raises:
        RequestError: the request is too long.
    """
    if len(line) > MAX_REQUEST_BYTES:
        raise RequestError(
            f"the request has {len(line)} bytes, and the server takes {MAX_REQUEST_BYTES}: send "
            "less at once, such as fewer jobs, arguments or variables of the environment",
            kind="invalid",
        )


def decode(line: bytes) -> Answer:
    """Return an answer of the server, which may be a refusal.

    Raises:
        RequestError: the line is not an answer.
    """
    try:
        answer = json.loads(line)
    except ValueError:
        raise RequestError("the server's answer is not JSON", kind="internal") from None
    if not isinstance(answer, dict):
        raise RequestError("the server's answer is not an object", kind="internal")
    return answer


def check(answer: Answer) -> Answer:
    """Return ``answer`` if it is not a refusal.

    Raises:
        RequestError: the server refuses.
    """
    if answer.get("ok"):
        return answer
    error = answer.get("error") or {}
    raise RequestError(
        str(error.get("message") or "the server refused without a reason"),
        kind=str(error.get("kind") or "internal"),
        field=str(error.get("field") or ""),
    )


def silent_server(op: str, path: str, timeout_s: float) -> SilentServerError:
    """Return the error for a request that the server has not answered within ``timeout_s``.

    Args:
        op: the operation; the text differs for those that change something.
        path: the server's socket, for the text.
        timeout_s: how long the client waited, in seconds.
    """
    text = f"the server did not answer within {timeout_s:g} s ({path})"
    if op in _READS:
        return SilentServerError(f"{text}: it is busy or stopped")
    return SilentServerError(
        f"{text}; whether the request was carried out is unknown: see `jobstat`"
    )


def silent_subscription(path: str) -> SilentServerError:
    """Return the error for a subscription that received no message for `SILENCE_S` seconds."""
    return SilentServerError(
        f"the server sent nothing for {SILENCE_S:g} s ({path}): it is busy or stopped"
    )


def explain(error: OSError, op: str, path: str) -> NoServerError:
    """Convert an error of the socket during a request to the error that the client raises.

    Args:
        error: the error of the operating system.
        op: the operation of the request; the text differs for those that change something.
        path: the server's socket, for the text.
    """
    if isinstance(error, FileNotFoundError | ConnectionRefusedError | NotADirectoryError):
        return NoServerError(
            f"no server answers on {path}; start a cluster with `pliant up --detach`"
        )
    if isinstance(error, UntrustedPathError):
        return UntrustedServerError(f"no connection to the server: {error}; {_TRUST}")
    if isinstance(error, ConnectionError):
        if op in _READS:
            return LostServerError(f"the server left while it was asked ({error})")
        return LostServerError(
            f"the server left while it was asked ({error}); whether the request was carried "
            "out is unknown: see `jobstat`"
        )
    return NoServerError(f"cannot reach the server on {path}: {error.strerror or error}")
