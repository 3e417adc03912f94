"""What handles of arrays have in common: name, shape and type, and this process's part.

A handle stays valid through every resize; its numpy arrays do not: programs fetch them anew.
"""

import copy
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Protocol, Self, TypeVar

from numpy.typing import DTypeLike

from pliant.appkit.data.dtype import cell_type, type_terms
from pliant.appkit.data.entry import Entry
from pliant.appkit.errors import DistributionError
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.exchange import Array
from pliant.appkit.redistribution.layout import Layout


class Handle(Entry):
    """A registered array of any kind."""

    #: What errors call it.
    kind_name = "array"
    #: What to use for Python objects.
    object_hint = "job.custom"
    #: Registered as constant, and not to be changed now.
    constant = False

    def __init__(
        self, membership: Membership, name: str, shape: tuple[int, ...], dtype: DTypeLike
    ) -> None:
        """Describe an array; nothing is allocated.

        Raises:
            ValueError: the type makes no sense, or is of Python objects (see ``cell_type``).
        """
        self.name = name
        #: The global shape; of items: that of one.
        self.shape = shape
        self.dtype = cell_type(self.label, dtype, self.object_hint)
        self._membership = membership

    @property
    def label(self) -> str:
        """How errors name it."""
        return f"{self.kind_name} {self.name!r}"

    @property
    def type_terms(self) -> object:
        """The type of a cell, in a description."""
        return type_terms(self.dtype)

    @property
    def has_all_data(self) -> bool:
        """Whether this process needs nothing from others, whatever the sizes."""
        return False

    @abstractmethod
    def buffers(self) -> list[Array]:
        """The arrays of this process's part."""

    def clone(self, twins: "Mapping[int, Handle]") -> Self:
        """Another handle of the same, to be filled beside this one while the program uses this.

        Args:
            twins: those of arrays that were registered before, by the ``id`` of the array.
        """
        return copy.copy(self)

    @abstractmethod
    def adopt(self, other: Any) -> None:
        """Have what a twin was filled with be the new part, after ``prepare``.

        Raises:
            DistributionError: it is not of the shape that was prepared.
        """

    def check_change(self) -> None:
        """Pass where the program may put other values.

        Raises:
            DistributionError: it has said that they do not change.
        """
        if self.constant:
            raise DistributionError(
                f"{self.label} is constant: call job.thaw on all processes before it is changed"
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.shape} {self.dtype}>"


class SinglePartHandle(Handle):
    """An array of which each process holds its part in one numpy array, or nothing."""

    def __init__(
        self, membership: Membership, name: str, shape: tuple[int, ...], dtype: DTypeLike
    ) -> None:
        """Describe an array; nothing is allocated."""
        super().__init__(membership, name, shape, dtype)
        self._array: Array | None = None
        self._next: Array | None = None

    @property
    def local(self) -> Array:
        """This process's part: a numpy array, to be fetched anew after a safe point."""
        self._membership.check()
        assert self._array is not None
        return self._array

    @local.setter
    def local(self, values: Any) -> None:
        self.check_change()
        self.local[...] = values

    def buffers(self) -> list[Array]:
        """The one array."""
        return [self._array] if self._array is not None else []

    def adopt(self, other: "SinglePartHandle") -> None:
        """Take its array."""
        room, array = self._next, other._array
        if room is None or array is None or room.shape != array.shape:
            raise DistributionError(f"{self.label}: what was read is not what is to be here")
        self._next = array

    def commit(self) -> None:
        """Use the new part; a view of the old one that the program holds is read-only then."""
        if self._array is not None:
            self._array.flags.writeable = False
        self._array, self._next = self._next, None

    def rollback(self) -> None:
        """Keep the old part."""
        self._next = None


class Block(Protocol):
    """One process's part of what lies in consecutive blocks."""

    start: int
    stop: int
    layout: Layout

    @abstractmethod
    def retire(self) -> None:
        """Make the views that the program may still hold read-only: a stale write then raises."""

    @abstractmethod
    def buffers(self) -> list[Array]:
        """Its arrays, those that others are views of first."""


BlockT = TypeVar("BlockT", bound=Block)


class BlockHandle(Handle, Generic[BlockT]):
    """An array in consecutive blocks along one axis, one for each process."""

    def __init__(
        self, membership: Membership, name: str, shape: tuple[int, ...], dtype: DTypeLike
    ) -> None:
        """Describe an array; nothing is allocated."""
        super().__init__(membership, name, shape, dtype)
        self._part: BlockT | None = None
        self._next: BlockT | None = None

    @property
    def start(self) -> int:
        """First owned cell along the axis; of a matrix: row."""
        return self._here().start

    @property
    def stop(self) -> int:
        """One past the last owned one."""
        return self._here().stop

    @property
    def layout(self) -> Layout:
        """Which rank owns which ones now."""
        return self._here().layout

    def _here(self) -> BlockT:
        self._membership.check()
        assert self._part is not None
        return self._part

    def buffers(self) -> list[Array]:
        """The arrays of the block."""
        return self._part.buffers() if self._part is not None else []

    def adopt(self, other: "BlockHandle[BlockT]") -> None:
        """Take its block."""
        room, part = self._next, other._part
        if room is None or part is None or (room.start, room.stop) != (part.start, part.stop):
            raise DistributionError(f"{self.label}: what was read is not what is to be here")
        self._next = part

    def commit(self) -> None:
        """Use the new part; a view of the old one that the program holds is read-only then."""
        if self._part is not None:
            self._part.retire()
        self._part, self._next = self._next, None

    def rollback(self) -> None:
        """Keep the old part."""
        self._next = None
