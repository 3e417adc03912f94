"""The server side of PMI-1 for the ranks of a world on this node.

This module only handles the protocol, without sockets or clock: it takes lines from ranks, and
returns effects, such as a reply, for the caller to carry out. Only the barrier of a world on
several nodes is not local: each node passes on the pairs that its ranks have put (`Barrier`), and
releases its ranks when it gets the merged pairs of all nodes (`release`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reply:
    """A line to send to a rank."""

    rank: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Barrier:
    """The event that all local ranks have entered the barrier, for the caller of the protocol.

    The caller calls `release` when the ranks of all other nodes have entered it, too.
    """

    sequence: int
    pairs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Finalized:
    """The event that a rank has called MPI_Finalize, for the caller of the protocol."""

    rank: int


@dataclass(frozen=True, slots=True)
class Abort:
    """An event for the caller of the PMI protocol: a rank has called MPI_Abort."""

    rank: int
    code: int
    message: str


Effect = Reply | Barrier | Finalized | Abort


class PmiServer:
    """Answers the PMI-1 requests of the local ranks of one ``MPI_COMM_WORLD``."""

    def __init__(self, name: str, size: int, local: Iterable[int], mapping: str) -> None:
        self.name = name
        self._local = frozenset(local)
        self._pairs: dict[str, str] = {"PMI_process_mapping": mapping}
        self._new_pairs: dict[str, str] = {}
        self._waiting: list[int] = []
        self._sequence = 0
        self._multi: dict[int, list[str]] = {}
        self._fixed = {
            "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_maxes": "cmd=maxes rc=0 kvsname_max=256 keylen_max=256 vallen_max=4096",
            "get_appnum": "cmd=appnum rc=0 appnum=0",
            "get_universe_size": f"cmd=universe_size rc=0 size={size}",
            "get_my_kvsname": f"cmd=my_kvsname rc=0 kvsname={name}",
        }

    def handle(self, rank: int, line: bytes) -> list[Effect]:
        """Handle one line from a rank; return effects, such as replies, to be carried out."""
        text = line.decode("utf-8", "replace").strip()
        if rank in self._multi or text.startswith("mcmd="):
            return self._handle_multi(rank, text)
        return self._handle_single(rank, text) if text else []

    def release(self, pairs: Mapping[str, str]) -> list[Effect]:
        """Release the local ranks from the barrier; return the replies that the caller sends them.

        Args:
            pairs: the key-value pairs that the ranks of all nodes have put.
        """
        self._pairs.update(pairs)
        ranks, self._waiting = self._waiting, []
        return [Reply(rank, b"cmd=barrier_out rc=0\n") for rank in ranks]

    def _handle_single(self, rank: int, text: str) -> list[Effect]:
        words = dict(word.split("=", 1) for word in text.split() if "=" in word)
        name = words.get("cmd", "")
        match name:
            case "put":
                return [self._put(rank, words.get("key"), text)]
            case "get":
                return [self._get(rank, words.get("key", ""))]
            case "barrier_in":
                return self._barrier(rank)
            case "finalize":
                return [Finalized(rank), _reply(rank, "cmd=finalize_ack rc=0")]
            case "abort":
                return [_abort(rank, words, text)]
            case _:
                fixed = self._fixed.get(name, f"cmd={name}_result rc=-1 msg=unsupported")
                return [_reply(rank, fixed)]

    def _put(self, rank: int, key: str | None, text: str) -> Reply:
        if key is None or " value=" not in text:
            return _reply(rank, "cmd=put_result rc=-1 msg=malformed")
        self._pairs[key] = self._new_pairs[key] = text.split(" value=", 1)[1]
        return _reply(rank, "cmd=put_result rc=0 msg=success")

    def _get(self, rank: int, key: str) -> Reply:
        value = self._pairs.get(key)
        if value is None:
            return _reply(rank, f"cmd=get_result rc=-1 msg=key_{key}_not_found value=unknown")
        return _reply(rank, f"cmd=get_result rc=0 msg=success value={value}")

    def _barrier(self, rank: int) -> list[Effect]:
        if rank not in self._waiting:
            self._waiting.append(rank)
        if len(self._waiting) < len(self._local):
            return []
        self._sequence += 1
        new, self._new_pairs = self._new_pairs, {}
        return [Barrier(self._sequence, new)]

    def _handle_multi(self, rank: int, text: str) -> list[Effect]:
        """Collect the lines of a request to spawn processes, the only PMI command of several lines.

        Return nothing until the last line. Then return a reply that refuses the request.
        """
        lines = self._multi.setdefault(rank, [])
        lines.append(text)
        if text != "endcmd":
            return []
        del self._multi[rank]
        name = lines[0].removeprefix("mcmd=")
        return [_reply(rank, f"cmd={name}_result rc=-1 msg=unsupported")]


def _reply(rank: int, text: str) -> Reply:
    return Reply(rank, text.encode() + b"\n")


def _abort(rank: int, words: Mapping[str, str], text: str) -> Abort:
    code = words.get("exitcode", "1")
    message = text.split(" message=", 1)[1] if " message=" in text else ""
    return Abort(rank, int(code) if code.lstrip("-").isdigit() else 1, message)
