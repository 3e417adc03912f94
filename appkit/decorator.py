"""``@malleable``: start and end of a program's main function."""

import contextlib
import functools
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
from mpi4py import MPI

from pliant.appkit.appkit_errors import AppkitError, JobLeave, WorldSizeMismatch
from pliant.appkit.checkpoint.save import Checkpoints
from pliant.appkit.environment import Environment, checkpoint_folder, read_environment
from pliant.appkit.exit_without_finalize import end_now
from pliant.appkit.job import Job
from pliant.appkit.json_lines import open_control
from pliant.appkit.loops import Loops
from pliant.appkit.mpi.connect import warm_up_connections
from pliant.appkit.mpi.membership import Membership, MembershipPhase
from pliant.appkit.mpi.unsupported_operations import refuse_unsupported
from pliant.appkit.registered_objects import JobData
from pliant.appkit.safe_point_runtime import Runtime
from pliant.core.support.plural import plural
from pliant.core.values.sizes import Sizes, SizesError, parse_sizes

P = ParamSpec("P")
R = TypeVar("R")

#: Seconds between the last output and an abort. A starter such as mpiexec loses output that it has
#: not read before the abort.
_OUTPUT_WAIT_S = 0.2


def malleable(
    sizes: str | None = None, prefer: int | None = None, *, evolving: bool = False
) -> Callable[[Callable[Concatenate[Job, P], R]], Callable[P, R]]:
    """Return a decorator that makes a function the ``main`` of a malleable program.

    When the function is called, it gets the `Job` as an additional first argument.

    Args:
        sizes: the numbers of processes that the program can use, as in "2-8" or "4-64:+4" (the size
            grammar); None for any.
        prefer: the number of processes on which it runs best.
        evolving: its size changes only when it asks for that (``job.request``, ``job.release``).

    Raises:
        SizesError: ``sizes`` is not in the grammar, or does not contain ``prefer``.
        TypeError: ``sizes`` is not a text, or ``prefer`` is not a whole number.
        ValueError: ``prefer`` is given without ``sizes``.

    The resulting function raises ``AppkitError`` if it is called a second time in a process that
    Pliant started. An exception that leaves ``main`` ends all processes of the job.
    """
    allowed = _read_sizes(sizes, prefer)

    def decorate(main: Callable[Concatenate[Job, P], R]) -> Callable[P, R]:
        @functools.wraps(main)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            environment = read_environment()
            if environment is None and allowed is not None:
                check_start(allowed, MPI.COMM_WORLD)
            return _Run(environment, allowed, evolving).call(lambda job: main(job, *args, **kwargs))

        return run

    return decorate


def _read_sizes(sizes: object, prefer: object) -> Sizes | None:
    """Return the sizes that the decorator's arguments name; None if the program runs on any size.

    Raises:
        SizesError, TypeError, ValueError: as `malleable`.
    """
    if callable(sizes):
        raise TypeError("malleable: write it with parentheses, as in @malleable(sizes='1-8')")
    if not isinstance(sizes, str | None):
        raise TypeError(f"malleable: sizes={sizes!r} is no text; write sizes='{sizes}'")
    if not isinstance(prefer, int | np.integer | None):
        raise TypeError(f"malleable: prefer={prefer!r} is no whole number")
    if sizes is None and prefer is not None:
        raise ValueError("malleable: prefer= needs sizes=")
    best = None if prefer is None else int(prefer)
    return parse_sizes(sizes, best) if sizes is not None else None


def check_start(sizes: Sizes, comm: MPI.Intracomm) -> None:
    """Check the number of processes of a program that runs without Pliant.

    A single process only causes a warning, because that is how programs are tried out.

    Raises:
        SizesError: the number of processes is above 1 and not one of the sizes.
    """
    if comm.size in sizes:
        return
    text = f"sizes={str(sizes)!r} does not include {plural(comm.size, 'process', 'processes')}"
    if comm.size > 1:
        raise SizesError(f"malleable: {text}: start the program with one of these sizes")
    print(f"pliant: {text}; it runs all the same", file=sys.stderr, flush=True)


#: Added to a NameError on a joining rank.
_JOINED_LATER = (
    "this process joined at a resize, so it did not run the iterations before: keep the value in "
    "job.state, or set it before the loop (`pliant check` finds such variables)"
)


class _Run:
    """One call of a malleable main function in this process."""

    #: Whether the control socket is in use; a process can use it only once.
    _managed_before = False

    def __init__(
        self, environment: Environment | None, sizes: Sizes | None, evolving: bool
    ) -> None:
        if environment is not None and _Run._managed_before:
            raise AppkitError("under Pliant a process runs one malleable main function, once")
        _Run._managed_before = _Run._managed_before or environment is not None
        self._environment = environment
        self._member = _membership(environment)
        loops = Loops()
        folder = _checkpoint_folder(environment)
        can_prefetch = environment is not None and folder is not None
        data = JobData(self._member, can_prefetch=can_prefetch)
        checkpoints = Checkpoints(data, folder, environment)
        self._runtime = Runtime(environment, data, loops, sizes, checkpoints, evolving)
        self._job = Job(data, loops, self._runtime)

    def call(self, main: Callable[[Job], R]) -> R:
        """Call ``main`` and return its result; afterwards, end this process's part in the job."""
        try:
            result = main(self._job)
            self._job.joining  # noqa: B018  # raises again a JobLeave that main swallowed
            self._job._check_left()
        except JobLeave:
            # The interpreter ends as usual: exit handlers run, output is flushed, MPI finalized.
            raise SystemExit(0) from None
        except SystemExit:
            self._finish(orderly=False)
            raise
        except BaseException as error:
            if isinstance(error, NameError) and self._environment and self._environment.joins:
                error.add_note(_JOINED_LATER)
            self._crash(error)
            raise
        if self._runtime.restorer is not None:
            raise self._runtime.restorer.never_reached()
        if self._member.phase is MembershipPhase.JOINING:
            end_now(1, "a joining rank came to the end of main() without a loop to join in")
        self._finish(orderly=True)
        return result

    def _finish(self, *, orderly: bool) -> None:
        self._runtime.close()
        comm = self._member.raw
        if self._member.phase is MembershipPhase.MEMBER:
            self._member.leave(MembershipPhase.ENDED)
            if orderly and comm is not None:
                comm.Disconnect()  # so that no message is pending at MPI_Finalize

    def _crash(self, error: BaseException) -> None:
        """Print the exception that left ``main``, and abort all processes of the job.

        Otherwise they would wait for this one. A single process that runs without Pliant is not
        aborted: the caller raises the exception.
        """
        if self._environment is None and MPI.COMM_WORLD.size == 1:
            return
        traceback.print_exc()
        self._runtime.report_fatal(error)
        sys.stdout.flush()
        sys.stderr.flush()
        if self._environment is None:
            time.sleep(_OUTPUT_WAIT_S)
        MPI.COMM_WORLD.Abort(1)


def _checkpoint_folder(environment: Environment | None) -> Path | None:
    if environment is None:
        return checkpoint_folder()
    return Path(environment.checkpoint) if environment.checkpoint else None


def _check_world_size(environment: Environment) -> None:
    """Check that ``MPI.COMM_WORLD`` has as many ranks as Pliant has started.

    Raises:
        WorldSizeMismatch: the ranks use an MPI library with which Pliant cannot start them.
    """
    expected, size = len(environment.processors), MPI.COMM_WORLD.size
    if not expected or size == expected:
        return
    first = MPI.Get_library_version().partition(",")[0].splitlines()[0]
    library = " ".join(first.split())
    error = WorldSizeMismatch(
        f"MPI.COMM_WORLD has {plural(size, 'rank')}, but the job was started with "
        f"{plural(expected, 'rank')}: the MPI library of mpi4py ({library}) is not served by "
        "Pliant: install MPICH in the environment of the program (pip install 'pliant[mpich]')"
    )
    control = open_control(environment.control_fd)
    with control.sock, contextlib.suppress(OSError):  # the shim has ended
        control.send(op="failed", text=str(error))
    raise error


def _membership(environment: Environment | None) -> Membership:
    if environment is None:
        return Membership(MPI.COMM_WORLD.Dup())
    _check_world_size(environment)
    refuse_unsupported()
    if environment.joins:
        return Membership(None, environment.epoch)
    warm_up_connections(MPI.COMM_WORLD)
    comm = MPI.COMM_WORLD.Dup()
    return Membership(comm, environment.epoch, environment.processors)
