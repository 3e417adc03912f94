"""The list of MPI operations, and which public names of mpi4py they call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mpi4py import MPI

from pliant.appkit.appkit_errors import UnsupportedOperation

#: Classes of mpi4py whose methods are operations.
CLASSES = (
    "Comm",
    "Intracomm",
    "Intercomm",
    "Topocomm",
    "Cartcomm",
    "Graphcomm",
    "Distgraphcomm",
    "Win",
    "File",
    "Group",
    "Datatype",
    "Request",
    "Prequest",
    "Grequest",
    "Message",
    "Op",
    "Info",
    "Errhandler",
    "Status",
    "Session",
)

#: Conversions of handles between languages. They do not call MPI.
HANDLES = {"fromhandle", "free", "toint", "fromint", "py2f", "f2py", "tomemory"}

#: Names that are not run, each with the reason.
LEFT_OUT = {
    "Comm.Abort": "ends the job",
    "Comm.Join": "needs a socket between two processes that share no communicator",
    "Comm.Get_parent": "not collective, and never has a result: Pliant starts all ranks",
}


class NotSupported(Exception):
    """MPI or appkit refused an operation with a clear error on all ranks, as documented."""


@contextmanager
def errors_of_appkit() -> Iterator[None]:
    """Within this context, turn appkit's refusal of an operation into NotSupported."""
    try:
        yield
    except UnsupportedOperation as error:
        raise NotSupported("an error of appkit") from error


@dataclass(frozen=True)
class Operation:
    """An MPI operation to test. Its collective function ``run`` raises if a result is wrong."""

    title: str
    group: str
    #: Public names of mpi4py that it calls, ``Comm.Send``.
    names: tuple[str, ...]
    run: Callable[[MPI.Intracomm, Path], None]


#: In the order in which they run.
OPERATIONS: dict[str, Operation] = {}


def operation(
    group: str, *names: str
) -> Callable[[Callable[[MPI.Intracomm, Path], None]], Callable[[MPI.Intracomm, Path], None]]:
    """Return a decorator that adds a function to the list of operations.

    Args:
        group: the heading under which the operation is listed.
        names: names of mpi4py that the function calls, as ``Class.method``. The first four are the
            title of the operation.
    """

    def add(
        run: Callable[[MPI.Intracomm, Path], None],
    ) -> Callable[[MPI.Intracomm, Path], None]:
        title = " / ".join(name.split(".")[1] for name in names[:4])
        title += f" and {len(names) - 4} more" if len(names) > 4 else ""
        if title in OPERATIONS:
            raise ValueError(f"operation {title!r} is listed twice")
        OPERATIONS[title] = Operation(title, group, names, run)
        return run

    return add


def public_names() -> Iterator[str]:
    """Yield each public method of the classes of mpi4py, as ``Class.method``."""
    for class_name in CLASSES:
        for name, value in vars(getattr(MPI, class_name)).items():
            is_method = callable(value) or isinstance(value, classmethod | staticmethod)
            if is_method and not name.startswith("_") and name not in HANDLES:
                yield f"{class_name}.{name}"


def missing() -> list[str]:
    """Return the public names that no operation calls and that `LEFT_OUT` does not name."""
    run = {name for operation in OPERATIONS.values() for name in operation.names}
    return [name for name in public_names() if name not in run and name not in LEFT_OUT]


def unknown() -> list[str]:
    """Return the names in the operations' list that this version of mpi4py does not have."""
    known = set(public_names())
    listed = {name for operation in OPERATIONS.values() for name in operation.names}
    return sorted((listed | set(LEFT_OUT)) - known)


def check(condition: object, message: str = "wrong result") -> None:
    """Check that a condition holds.

    Raises:
        AssertionError: it is false; the text has the message and the line of the caller.
    """
    if not condition:
        caller = inspect.stack()[1]
        raise AssertionError(f"{message} ({Path(caller.filename).name}:{caller.lineno})")
