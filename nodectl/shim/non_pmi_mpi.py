"""Ranks of an MPI library that PMI-1 cannot serve: start them by their own launcher, or end them.

A program that is linked with such a library is recognised before the start. Interpreters load
their MPI library later, so the libraries of the ranks are checked until one rank uses PMI.
Otherwise a job of N ranks would be N jobs of one rank, which compute the same and overwrite each
other's files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from pliant.nodectl.host import mpi_libraries
from pliant.nodectl.host.mpi_libraries import MpiLibrary
from pliant.nodectl.shim.event_loop import EventLoop, ScheduledCall
from pliant.nodectl.shim.rank_fork_exec import program_paths
from pliant.nodectl.shim.ranks import Rank
from pliant.nodectl.world_folder import StartRequest, to_bytes, to_text

#: Seconds until the libraries of a rank are looked at for the first time. Each look takes 0.3 ms.
#: The time to the next one doubles: most programs load MPI first, and some run only for a moment.
_FIRST_LOOK_S, _MAX_LOOK_S = 0.02, 10.0

_REMEDY = (
    "build the program with MPICH, or submit a script that calls the mpiexec of that library "
    "(jobsub -n N job.sh)"
)


class ForeignMpiError(Exception):
    """Ranks cannot be started because their MPI library needs its own launcher.

    The text is for users.
    """


def use_own_launcher(request: StartRequest) -> StartRequest:
    """Return a request to start ranks, changed if their MPI library needs a launcher of its own.

    The changed request starts one process, the launcher (mpirun), on the first processor. The
    launcher then starts the ranks.

    Raises:
        ForeignMpiError: the program needs a launcher, which cannot be used here.
    """
    if not (request.is_mpi and request.size > 1 and request.argv):
        return request
    library = library_without_pmi(request)
    if library is None:
        return request
    linked = f"program {request.argv[0]} is linked with {library}, which cannot use PMI-1"
    if request.resize or request.size > len(request.ranks):
        raise ForeignMpiError(f"{linked}, and runs on several nodes: {_REMEDY}")
    launcher = mpi_libraries.find_launcher(library, request.environment.get("PATH", os.defpath))
    if not launcher:
        raise ForeignMpiError(
            f"{linked}, and its launcher mpirun is neither next to it nor in PATH: install it on "
            f"node {request.node_name}, or build the program with MPICH"
        )
    # Pliant has chosen the CPUs, which may be time-shared.
    size = str(request.size)
    options = ["--host", f"localhost:{size}", "--bind-to", "none", "-n", size]
    return replace(request, type="script", argv=[launcher, *options, *request.argv])


def library_without_pmi(request: StartRequest) -> MpiLibrary | None:
    """Return the MPI library of a program if PMI-1 cannot serve it; None otherwise."""
    program = _program(request)
    library = mpi_libraries.linked_library(program, request.environment) if program else None
    return library if library is not None and not library.speaks_pmi else None


def _program(request: StartRequest) -> str:
    """Return the path of the program that will be executed; empty if it does not exist."""
    environment = {to_bytes(name): to_bytes(value) for name, value in request.environment.items()}
    folder = to_bytes(request.directory)
    for candidate in program_paths(to_bytes(request.argv[0]), environment):
        path = os.path.join(folder, candidate)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return to_text(path)
    return ""


class SingletonDetector:
    """Detects that the ranks of a job run as separate MPI programs of one rank each.

    It recognises them by a loaded MPI library, and looks until one of the ranks uses PMI.
    """

    def __init__(
        self,
        loop: EventLoop,
        request: StartRequest,
        ranks: Mapping[int, Rank],
        on_foreign: Callable[[str], None],
    ) -> None:
        """Start to look at the libraries of the ranks, if an MPI job starts with several ranks.

        Args:
            loop: runs the timers.
            request: the request to start the ranks.
            ranks: the ranks of this node.
            on_foreign: gets the reason to end the ranks; called once.
        """
        self._loop, self._ranks, self._on_foreign = loop, ranks, on_foreign
        self._library: MpiLibrary | None = None
        self._interval_s = _FIRST_LOOK_S
        self._next: ScheduledCall | None = None
        self._size = request.size
        if request.is_mpi and request.size > 1 and not request.resize:
            self._next = loop.after(self._interval_s, self._look)

    def stop(self) -> None:
        """Stop looking at the libraries, because a rank uses PMI or the ranks end."""
        self._library = None
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def verdict(self) -> tuple[int, str] | None:
        """Return exit code and reason for a rank that ends without having used PMI.

        None if a rank has used PMI, or if no rank was seen to load an MPI library.
        """
        if self._library is None:
            return None
        text = (
            f"it has loaded {self._library}, but none of its {self._size} ranks has contacted "
            f"Pliant through PMI-1, so each of them ran alone: {_REMEDY}"
        )
        return 1, text

    def _look(self) -> None:
        self._interval_s = min(2 * self._interval_s, _MAX_LOOK_S)
        self._next = self._loop.after(self._interval_s, self._look)
        rank = next((rank for rank in self._ranks.values() if rank.runs), None)
        if rank is None:
            return
        foreign = mpi_libraries.unlaunched_library(rank.pid)
        self._library = foreign or mpi_libraries.loaded_library(rank.pid)
        if foreign is not None:
            reason = self.verdict()
            assert reason is not None
            self._on_foreign(reason[1])
