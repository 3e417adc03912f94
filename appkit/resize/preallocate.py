"""Memory for a growth, made while the program computes.

The system gives a page when it is first written to, which takes about as long as the data that go
into it, or longer. Newcomers have nothing else to do before they join. The others are told by rank
0 at a safe point, as soon as newcomers are on their way: each lays out its new parts and has a
thread write to every page. From then on a process has its old and its new share.
"""

import threading
from dataclasses import dataclass

from pliant.appkit.coordinator.coordinator import Coordinator
from pliant.appkit.data.entry import Entry, Registry
from pliant.appkit.data.fill import touch_pages
from pliant.appkit.errors import AppkitError
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.exchange import Array


@dataclass(frozen=True, slots=True)
class PreallocateOrder:
    """What rank 0 tells all at a safe point."""

    #: 0: what it was made for is off.
    resize: int = 0
    #: Processes after it.
    size: int = 0


class Preallocator:
    """The room of one process."""

    def __init__(self, registry: Registry, member: Membership) -> None:
        """Have none yet."""
        self._registry, self._member = registry, member
        self._resize = 0
        self._made: list[Entry] = []
        self._thread: threading.Thread | None = None

    # ---------------------------------------------------------------- rank 0

    def has_work(self, resize: int) -> bool:
        """Whether there may be something to tell; ``resize`` is in hand now, 0: none."""
        return resize != self._resize

    def next_order(self, coordinator: Coordinator) -> PreallocateOrder | None:
        """What is to be told; None: nothing, or it is too late."""
        decision = coordinator.current()
        if self._resize and (decision is None or decision.resize != self._resize):
            return PreallocateOrder()
        if self._resize or decision is None or not decision.grows or coordinator.ready:
            return None
        return PreallocateOrder(decision.resize, self._member.size + len(decision.joining))

    # ---------------------------------------------------------------- all

    def execute(self, order: PreallocateOrder) -> None:
        """Do what rank 0 tells."""
        self.clear()
        self._resize = order.resize
        if order.resize:
            arrays = self.make(order.size, self._member.rank)
            self._thread = threading.Thread(
                target=touch_pages, args=(arrays,), name="pliant-room", daemon=True
            )
            self._thread.start()

    def make(self, size: int, rank: int) -> list[Array]:
        """Lay out the parts of rank ``rank`` of ``size``, whose pages are still to be given."""
        arrays: list[Array] = []
        try:
            for entry in self._registry:
                if found := entry.preallocate(size, rank):
                    self._made.append(entry)
                    arrays += found
        except (AppkitError, MemoryError):  # the resize itself will meet it again, and tell
            self._give_back()
            return []
        return arrays

    def wait(self, resize: int) -> None:
        """This resize begins: wait for the last pages; room for another is of no use."""
        if self._thread is not None:
            self._thread.join()
        if self._resize != resize:
            self.clear()

    def clear(self) -> None:
        """The resize is over, or off."""
        if self._thread is not None:
            self._thread.join()
        self._give_back()
        self._resize, self._thread = 0, None

    def _give_back(self) -> None:
        for entry in self._made:
            entry.rollback()
        self._made.clear()
