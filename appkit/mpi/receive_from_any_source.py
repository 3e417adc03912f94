"""Receive from any source over the transport ucx: probe first, or raise an error.

MPICH 5.0.2 posts a receive from any source twice, with the transport and with its shared memory.
If ucx already has the message, the transport's half completes at once and MPICH never completes
the other one, so the receive hangs. Whether the message is there first is a matter of time:
programs hang rarely on an idle machine, and often on a loaded one. It happens where ranks do not
share memory: in all jobs that can grow (`server/execution/start_orders.py`), and between nodes. No
setting prevents it: with UCX_RNDV_THRESH=0 empty messages still hang.

A matching probe is not affected. A blocking receive probes for the message first and then receives
it, which has the same effect. A nonblocking receive cannot wait, so it raises an error.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpi4py import MPI

from pliant.appkit.appkit_errors import UnsupportedOperation

#: With this setting MPICH takes every rank for a node of its own. The server sets it, see
#: `server/execution/start_orders.py`.
NO_SHARED_MEMORY = "MPIR_CVAR_NOLOCAL"


def transport_is_ucx() -> bool:
    """Return whether MPI messages of this job are sent with the ucx library."""
    return os.environ.get("MPIR_CVAR_CH4_NETMOD") == "ucx"


def has_no_shared_memory() -> bool:
    """Return whether the ranks of this job share no memory, not even on the same node."""
    return os.environ.get(NO_SHARED_MEMORY, "0") not in ("0", "")


def replacements() -> dict[str, Callable[..., Any]]:
    """Return the functions that replace receiving methods of `MPI.Comm`, by name.

    Empty if the transport is not ucx.
    """
    if not transport_is_ucx():
        return {}
    replaced: dict[str, Callable[..., Any]] = {
        "Recv": _receive,
        "recv": _receive_object,
        "Sendrecv": _send_receive,
        "sendrecv": _send_receive_object,
    }
    if has_no_shared_memory():
        # The position of the source in the arguments, after the communicator.
        positions = {"Irecv": 1, "irecv": 1, "Recv_init": 1}
        positions |= {"Isendrecv": 4, "Sendrecv_replace": 3, "Isendrecv_replace": 3}
        replaced |= {name: _refusing(name, position) for name, position in positions.items()}
    return replaced


def _receive(
    original: Callable[..., None],
    comm: MPI.Comm,
    buf: Any,
    source: int = MPI.ANY_SOURCE,
    tag: int = MPI.ANY_TAG,
    status: MPI.Status | None = None,
) -> None:
    if source == MPI.ANY_SOURCE:
        comm.Mprobe(source, tag).Recv(buf, status)
    else:
        original(comm, buf, source, tag, status)


def _receive_object(
    original: Callable[..., Any],
    comm: MPI.Comm,
    buf: Any = None,
    source: int = MPI.ANY_SOURCE,
    tag: int = MPI.ANY_TAG,
    status: MPI.Status | None = None,
) -> Any:
    # Without a buffer, mpi4py probes for the message to learn its length.
    return original(comm, None if source == MPI.ANY_SOURCE else buf, source, tag, status)


def _send_receive(
    original: Callable[..., None],
    comm: MPI.Comm,
    sendbuf: Any,
    dest: int,
    sendtag: int = 0,
    *positional: Any,
    **named: Any,
) -> None:
    receive = _receive_arguments(positional, named)
    if receive["source"] != MPI.ANY_SOURCE:
        original(comm, sendbuf, dest, sendtag, *positional, **named)
        return
    request = comm.Isend(sendbuf, dest, sendtag)
    message = comm.Mprobe(MPI.ANY_SOURCE, receive["recvtag"])
    message.Recv(receive["recvbuf"], receive["status"])
    request.Wait()


def _send_receive_object(
    original: Callable[..., Any],
    comm: MPI.Comm,
    sendobj: Any,
    dest: int,
    sendtag: int = 0,
    *positional: Any,
    **named: Any,
) -> Any:
    receive = _receive_arguments(positional, named)
    if receive["source"] == MPI.ANY_SOURCE:
        receive["recvbuf"] = None  # as in `_receive_object`
    return original(comm, sendobj, dest, sendtag, **receive)


def _receive_arguments(positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return, by name, the arguments of the receive in a call such as ``Sendrecv``.

    Args:
        positional: the arguments of the call that follow those of the send.
        named: its keyword arguments.
    """
    receive: dict[str, Any] = {"recvbuf": None, "source": MPI.ANY_SOURCE}
    receive |= {"recvtag": MPI.ANY_TAG, "status": None}
    return {**receive, **dict(zip(receive, positional, strict=False)), **named}


def _refusing(name: str, position: int) -> Callable[..., Any]:
    def check(original: Callable[..., Any], comm: MPI.Comm, *positional: Any, **named: Any) -> Any:
        given = positional[position] if len(positional) > position else MPI.ANY_SOURCE
        if named.get("source", given) == MPI.ANY_SOURCE:
            raise UnsupportedOperation(
                f"comm.{name} from MPI.ANY_SOURCE can hang with the transport ucx; "
                "use comm.Recv, or comm.Improbe and Message.Irecv, or the transport ofi"
            )
        return original(comm, *positional, **named)

    return check
