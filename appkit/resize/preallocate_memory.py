"""Allocate the memory of a growth while the program computes.

The operating system provides a page of memory when it is first written to. That takes about as long
as moving the data into it, so it is done before the pause. Joining ranks allocate before they join.
Rank 0 tells the other ranks at the first safe point after GO, unless the growth can begin there.
Each lays out its new parts, and a thread writes to every page. The thread stops early if the growth
is withdrawn. If it fails, the resize allocates the parts itself. From the order until the end of
the resize, a process has memory for both its old and its new share.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pliant.appkit.appkit_errors import AppkitError
from pliant.appkit.data.initial_values import touch_pages
from pliant.appkit.data.registered_data import RegisteredData, Registry
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.range_exchange import Array


@dataclass(frozen=True, slots=True)
class PreallocateOrder:
    """Rank 0's order to allocate memory before a growth, or to release it.

    The field names are part of the protocol.
    """

    #: The resize to allocate for; 0 to release, because the resize was withdrawn.
    resize: int = 0
    #: Number of processes after the resize.
    size: int = 0


class Preallocator:
    """Allocates, before a growth, the memory that this process will need for its new parts."""

    def __init__(self, registry: Registry, member: Membership) -> None:
        """Store the registered objects; `execute` and `allocate_now` allocate their new parts."""
        self._registry, self._member = registry, member
        #: The resize for which memory is allocated; 0 if there is none.
        self.resize = 0
        self._allocated: list[RegisteredData] = []
        self._thread: threading.Thread | None = None
        #: Set if the thread need not continue.
        self._withdrawn = threading.Event()
        #: Whether every page of the arrays in `_allocated` is there.
        self._is_complete = False

    def execute(self, order: PreallocateOrder) -> None:
        """Carry out ``order``: allocate memory for a growth in a new thread, or release memory.

        Memory that was allocated for another growth is released first.
        """
        self.clear()
        self.resize = order.resize
        if order.resize:
            arrays = self._lay_out(order.size, self._member.rank)
            self._withdrawn, self._is_complete = threading.Event(), False
            self._thread = threading.Thread(
                target=self._touch,
                args=(arrays, self._withdrawn.is_set),
                name="pliant-preallocate",
                daemon=True,
            )
            self._thread.start()

    def _touch(self, arrays: list[Array], is_withdrawn: Callable[[], bool]) -> None:
        """Write to every page of the arrays, so that the system allocates them.

        If that fails or is stopped, the parts stay incomplete, and `wait` discards them.
        """
        with suppress(MemoryError):  # the resize itself fails the same way and reports it
            touch_pages(arrays, is_withdrawn)
            self._is_complete = not is_withdrawn()

    def allocate_now(self, size: int, rank: int) -> None:
        """Allocate the parts of a joining process, which will be rank ``rank`` of ``size``.

        This blocks until the memory is there: a joining process has nothing else to do.
        """
        try:
            touch_pages(self._lay_out(size, rank))
        except MemoryError:  # the join itself fails the same way and reports it
            self._roll_back()

    def wait(self, resize: int) -> None:
        """Wait until the memory for ``resize`` is allocated.

        The parts are released if they are for another resize, or if some of their pages could not
        be allocated. The resize then allocates its parts itself.
        """
        if self.resize != resize:
            self.clear()
        elif self._thread is not None:
            self._thread.join()
            if not self._is_complete:
                self._roll_back()

    def clear(self) -> None:
        """Release the allocated memory, because the resize has ended or was withdrawn."""
        self._withdrawn.set()
        if self._thread is not None:
            self._thread.join()
        self._roll_back()
        self.resize, self._thread = 0, None

    def _lay_out(self, size: int, rank: int) -> list[Array]:
        """Create the new parts of rank ``rank`` of ``size``, and return their arrays.

        The operating system provides their memory only when it is first written to.
        """
        arrays: list[Array] = []
        try:
            for entry in self._registry:
                if found := entry.preallocate(size, rank):
                    self._allocated.append(entry)
                    arrays += found
        except (AppkitError, MemoryError):  # the resize itself fails the same way and reports it
            self._roll_back()
            return []
        return arrays

    def _roll_back(self) -> None:
        for entry in self._allocated:
            entry.rollback()
        self._allocated.clear()
