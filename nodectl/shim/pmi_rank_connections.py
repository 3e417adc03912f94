"""PMI-1 for the ranks of a shim or of a step: passes lines to the protocol and carries out effects.

`pmi_protocol` is the protocol without sockets. Here its replies are sent to the ranks. Barriers and
calls of MPI_Abort and MPI_Finalize are passed on to the owner of the ranks. The first line of any
rank shows that the program uses PMI, so the search for programs without it (`non_pmi_mpi`) stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from pliant.nodectl.shim.event_loop import EventLoop
from pliant.nodectl.shim.non_pmi_mpi import SingletonDetector
from pliant.nodectl.shim.pmi_protocol import Abort, Barrier, Effect, Finalized, PmiServer, Reply
from pliant.nodectl.shim.ranks import Rank
from pliant.nodectl.world_folder import StartRequest


class PmiEvents(Protocol):
    """Receives the PMI events that the owner of the ranks must handle: barrier, finalize, abort."""

    def on_barrier(self, sequence: int, pairs: dict[str, str]) -> None:
        """Handle a barrier that all local ranks have entered.

        Args:
            sequence: the number of the barrier.
            pairs: the key-value pairs that these ranks have put.
        """

    def on_finalize(self) -> None:
        """Handle a rank's call of MPI_Finalize."""

    def on_abort(self, rank: int, code: int, message: str) -> None:
        """Handle a rank's call of MPI_Abort."""


class PmiService:
    """Serves PMI-1 to the local ranks of a job, or of a program that a script has started."""

    def __init__(self, request: StartRequest, ranks: Mapping[int, Rank], events: PmiEvents) -> None:
        """Prepare to serve.

        Args:
            request: the request to start the ranks.
            ranks: the local ranks by number. The owner adds them later.
            events: the owner of the ranks.
        """
        self._request, self._ranks, self._events = request, ranks, events
        local = [rank for rank, _ in request.ranks]
        self._server = PmiServer(request.world, request.size, local, request.mapping)
        self._detector: SingletonDetector | None = None

    def handle(self, rank: int, line: bytes) -> None:
        """Handle a PMI-1 line from a rank: send replies, and call the owner for other events."""
        self.stop_detection()
        self._apply(self._server.handle(rank, line))

    def release(self, pairs: Mapping[str, str]) -> None:
        """Release the ranks from a barrier, given the pairs that all nodes have put."""
        self._apply(self._server.release(pairs))

    def detect_singletons(self, loop: EventLoop, on_foreign: Callable[[str], None]) -> None:
        """Look for ranks that start MPI without PMI, so that each would be alone in its world.

        Args:
            loop: calls the detection.
            on_foreign: called at most once, with the reason to end all ranks.
        """
        self._detector = SingletonDetector(loop, self._request, self._ranks, on_foreign)

    def stop_detection(self) -> None:
        """Stop looking for ranks that start without PMI."""
        if self._detector is not None:
            self._detector.stop()
            self._detector = None

    def verdict(self) -> tuple[int, str] | None:
        """Return exit code and reason for a rank that ends now without having used PMI.

        None if a rank has used PMI, or if no rank was seen to load an MPI library.
        """
        return self._detector.verdict() if self._detector is not None else None

    def _apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(rank, data):
                    channel = self._ranks[rank].pmi
                    if channel is not None:
                        channel.send(data)
                case Barrier(sequence, pairs):
                    self._events.on_barrier(sequence, dict(pairs))
                case Finalized():
                    self._events.on_finalize()
                case Abort(rank, code, message):
                    self._events.on_abort(rank, code, message.strip())


def abort_reason(rank: int, code: int, message: str) -> str:
    """Return the reason to report for all ranks if one of them has called MPI_Abort.

    Args:
        rank: the rank that called it.
        code: the error code of the call.
        message: the text that the MPI library adds; empty for none.
    """
    text = f" ({message})" if message not in {"", "abort"} else ""
    return f"rank {rank} aborted with code {code}{text}"
