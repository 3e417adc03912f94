"""Make MPICH sleep while it waits, during the pause of a resize.

MPICH waits in a loop that yields to other processes but does not sleep. During a resize there are
often more processes than processors, so waiting ranks take processor time from working ones. MPICH
can sleep between two polls. That would cost every message about 60 us, so it is switched on for the
pause only, through the MPI tool interface. Other MPI libraries have no such switch and are left as
they are.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from mpi4py import MPI

_SERIALIZED = MPI.THREAD_SERIALIZED
_SWITCH = b"MPIR_CVAR_ENABLE_HEAVY_YIELD"


class Variable:
    """A control variable of the MPI library (``MPI_T``), read and set at run time."""

    def __init__(self, library: ctypes.CDLL, handle: ctypes.c_void_p) -> None:
        self._library, self._handle = library, handle

    def get(self) -> int:
        """Return the value, read from the MPI library at each call."""
        value = ctypes.c_int()
        self._library.MPI_T_cvar_read(self._handle, ctypes.byref(value))
        return value.value

    def set(self, value: int) -> None:
        """Set the value of the variable. It applies to all communicators of this process."""
        self._library.MPI_T_cvar_write(self._handle, ctypes.byref(ctypes.c_int(value)))


@contextmanager
def blocking_waits() -> Iterator[None]:
    """Within this context, let MPICH sleep between polls; other MPI libraries are not changed."""
    switch = find(_SWITCH)
    if switch is None:
        yield
        return
    before = switch.get()
    switch.set(1)
    try:
        yield
    finally:
        switch.set(before)


@cache
def find(name: bytes) -> Variable | None:
    """Return a control variable, or None if this MPI library has none of that name."""
    try:
        # A loaded module gives access to the symbols of the libraries it is linked to.
        library = ctypes.CDLL(MPI.__file__)
        return _open(library, name)
    except (OSError, AttributeError):
        return None


def _open(library: ctypes.CDLL, name: bytes) -> Variable | None:
    level, index, count = ctypes.c_int(), ctypes.c_int(-1), ctypes.c_int()
    handle = ctypes.c_void_p()
    done = (
        library.MPI_T_init_thread(_SERIALIZED, ctypes.byref(level)) == 0
        and library.MPI_T_cvar_get_index(name, ctypes.byref(index)) == 0
        and library.MPI_T_cvar_handle_alloc(index, None, ctypes.byref(handle), ctypes.byref(count))
        == 0
        and count.value == 1
    )
    return Variable(library, handle) if done else None
