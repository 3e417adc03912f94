"""Base classes of array handles: name, shape, type, and the part of this process.

A handle stays valid through every resize. Its numpy arrays do not: programs read them again.
"""

import copy
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Protocol, Self, TypeVar

from numpy.typing import DTypeLike

from pliant.appkit.appkit_errors import DistributionError
from pliant.appkit.data.dtype import cell_type, type_terms
from pliant.appkit.data.registered_data import RegisteredData
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.layout import Layout
from pliant.appkit.redistribution.range_exchange import Array


class Handle(RegisteredData):
    """Base class of the handles of registered arrays, such as the result of ``job.block``."""

    #: How errors call objects of this kind.
    kind_name = "array"
    #: The call to use for Python objects, named in errors.
    object_hint = "job.custom"
    #: Whether the array is registered as constant and must not be changed now.
    constant = False

    def __init__(
        self, membership: Membership, name: str, shape: tuple[int, ...], dtype: DTypeLike
    ) -> None:
        """Describe an array without allocating it.

        Raises:
            ValueError: The type is invalid or contains Python objects (see ``cell_type``).
        """
        self.name = name
        #: The global shape; for items, the shape of one item.
        self.shape = shape
        self.dtype = cell_type(self.label, dtype, self.object_hint)
        self._membership = membership

    @property
    def label(self) -> str:
        """Return the kind of the object and its name, for error messages."""
        return f"{self.kind_name} {self.name!r}"

    @property
    def type_terms(self) -> object:
        """Return the cell type as JSON values, for the array's description (`describe`)."""
        return type_terms(self.dtype)

    @property
    def has_all_data(self) -> bool:
        """Return whether this process holds all data that it would need at any size of the job.

        This is True for a replicated array only. No data have to be moved to such a process.
        """
        return False

    @abstractmethod
    def buffers(self) -> list[Array]:
        """Return the numpy arrays that hold this process's part; empty if it has no part."""

    def clone(self, twins: "Mapping[int, Handle]") -> Self:
        """Return a copy of the handle that can be filled while the program uses the original.

        Args:
            twins: Copies of handles that were registered before, by the ``id`` of the original.
        """
        return copy.copy(self)

    @abstractmethod
    def adopt(self, other: Any) -> None:
        """Use the part of ``other``, a filled `clone`; called in a resize, after ``prepare``.

        The part that ``prepare`` has allocated is released.

        Raises:
            DistributionError: The part does not have the shape of the allocated one.
        """

    def check_change(self) -> None:
        """Check that the program may change values now.

        Raises:
            DistributionError: The array was registered with ``constant=True``, and the program has
                not called ``job.thaw``.
        """
        if self.constant:
            raise DistributionError(
                f"{self.label} is constant: call job.thaw on all processes before it is changed"
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.shape} {self.dtype}>"


class SinglePartHandle(Handle):
    """An array of which each process holds at most one part, a numpy array."""

    def __init__(
        self, membership: Membership, name: str, shape: tuple[int, ...], dtype: DTypeLike
    ) -> None:
        """Describe an array without allocating it."""
        super().__init__(membership, name, shape, dtype)
        self._array: Array | None = None
        self._next: Array | None = None

    @property
    def local(self) -> Array:
        """Return this process's part, a numpy array; after a safe point, read ``local`` again."""
        self._membership.check()
        assert self._array is not None
        return self._array

    @local.setter
    def local(self, values: Any) -> None:
        self.check_change()
        self.local[...] = values

    def buffers(self) -> list[Array]:
        """Return a list with the array of this process; empty if it has none."""
        return [self._array] if self._array is not None else []

    def adopt(self, other: "SinglePartHandle") -> None:
        """Use the array of a filled clone as the new array; see `Handle.adopt`."""
        prepared, array = self._next, other._array
        shapes = [None if each is None else each.shape for each in (array, prepared)]
        if array is None or shapes[0] != shapes[1]:
            raise DistributionError(
                f"{self.label}: the prefetched part has shape {shapes[0]}, expected {shapes[1]}"
            )
        self._next = array

    def commit(self) -> None:
        """Switch to the array that the resize has filled.

        The old array becomes read-only: a write through a reference kept over the resize raises.
        """
        if self._array is not None:
            self._array.flags.writeable = False
        self._array, self._next = self._next, None

    def rollback(self) -> None:
        """Release the array that a failed resize has allocated; the present one was not changed."""
        self._next = None


class Block(Protocol):
    """One process's part of an array that is divided into consecutive blocks."""

    start: int
    stop: int
    layout: Layout

    @abstractmethod
    def retire(self) -> None:
        """Make the arrays read-only: a write through a reference kept over a resize then raises."""

    @abstractmethod
    def buffers(self) -> list[Array]:
        """Return the arrays of the block, base arrays before their views."""


BlockT = TypeVar("BlockT", bound=Block)


class BlockHandle(Handle, Generic[BlockT]):
    """Base class of the handles of arrays in consecutive blocks along one axis, one per process."""

    def __init__(
        self, membership: Membership, name: str, shape: tuple[int, ...], dtype: DTypeLike
    ) -> None:
        """Describe an array without allocating it."""
        super().__init__(membership, name, shape, dtype)
        self._part: BlockT | None = None
        self._next: BlockT | None = None

    @property
    def start(self) -> int:
        """Return the first owned cell along the axis; for a matrix, the first owned row."""
        return self._here().start

    @property
    def stop(self) -> int:
        """Return one past the last owned cell or row."""
        return self._here().stop

    @property
    def layout(self) -> Layout:
        """Return the present layout: which rank owns which cells or rows."""
        return self._here().layout

    def _here(self) -> BlockT:
        self._membership.check()
        assert self._part is not None
        return self._part

    def buffers(self) -> list[Array]:
        """Return the numpy arrays of this process's block; empty if it has no block."""
        return self._part.buffers() if self._part is not None else []

    def adopt(self, other: "BlockHandle[BlockT]") -> None:
        """Use the block of a filled clone as the new block; see `Handle.adopt`."""
        prepared, part = self._next, other._part
        cells = [None if each is None else (each.start, each.stop) for each in (part, prepared)]
        if part is None or cells[0] != cells[1]:
            raise DistributionError(
                f"{self.label}: the prefetched part has cells {cells[0]}, expected {cells[1]}"
            )
        self._next = part

    def commit(self) -> None:
        """Switch to the block that the resize has filled.

        The old block becomes read-only: a write through a reference kept over the resize raises.
        """
        if self._part is not None:
            self._part.retire()
        self._part, self._next = self._next, None

    def rollback(self) -> None:
        """Release the block that a failed resize has allocated; the present one was not changed."""
        self._next = None
