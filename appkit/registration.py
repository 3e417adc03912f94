"""Registration of data with a job: the common checks, and the kinds that are not divided arrays."""

import operator
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from pliant.appkit.appkit_errors import LateRegistration
from pliant.appkit.data.array_handles import Handle
from pliant.appkit.data.constant_arrays import Constant
from pliant.appkit.data.registered_data import RegisteredData
from pliant.appkit.kinds.custom import Custom, Pack, Unpack
from pliant.appkit.kinds.replicated_and_root_arrays import RootArray
from pliant.appkit.kinds.replicated_values import State, StateEntry
from pliant.appkit.kinds.rng import RandomStreams
from pliant.appkit.loops import Loops
from pliant.appkit.mpi.membership import MembershipPhase
from pliant.appkit.registered_objects import JobData

EntryT = TypeVar("EntryT", bound=RegisteredData)
V = TypeVar("V")


class Registration:
    """The methods of `Job` that register values, root arrays and random numbers.

    Every process must call them before its first loop, in the same order with the same arguments.
    The subclass `DataRegistration` adds the methods for distributed arrays.
    """

    def __init__(self, data: JobData, loops: Loops) -> None:
        """Store where objects are registered: in ``data``, until the first of ``loops`` begins."""
        self._data = data
        self._member = data.membership
        self._loops = loops

    @property
    def joining(self) -> bool:
        """Return whether this process is joining, and its data have not arrived.

        True from the top of ``main`` to its first safe point, also after a restart from a
        checkpoint. ``if not job.joining:`` guards code that such a process must not execute.

        Raises:
            JobLeave: this process has left the job.
        """
        if self._member.phase is MembershipPhase.LEFT:
            self._member.check()
        return self._member.phase is MembershipPhase.JOINING

    def state(self, /, **values: Any) -> State:
        """Register small values, equal on all processes; a resize broadcasts the values of rank 0.

        Args:
            values: the first value of each name; names cannot be added later. Scalars, text,
                containers and numpy arrays are sent as they are, other objects as pickles.

        Returns:
            A handle: ``s.name`` reads and assigns.

        Raises:
            LateRegistration: inside a loop.
            StateError: a value cannot be sent to other processes.
            ValueError: a name is one of the handle's own, such as ``__class__``.
        """
        self._check_early("state")
        state = State(self._member, values)
        entry = StateEntry(state)
        entry.check()
        self._data.states.append(entry)
        return state

    def root_only(
        self,
        name: str,
        shape: int | tuple[int, ...],
        *,
        dtype: DTypeLike = np.float64,
        init: Callable[[], Any] | None = None,
    ) -> RootArray:
        """Register an array that exists on rank 0 alone; it moves if that process leaves.

        Args:
            name: unique in the job.
            shape: the shape of the array.
            dtype: the type of a cell.
            init: returns the array; called on rank 0 only. Without it: zeros.

        Returns:
            The handle of the array.

        Raises:
            DuplicateName: the name is taken.
            LateRegistration: inside a loop.
            DistributionError: what ``init`` returned does not fit.
            ValueError: ``shape`` or ``dtype`` is invalid.
        """
        array = RootArray(self._member, name, as_shape(shape), dtype)
        return self._register(array, lambda: array.start_with(init))

    def rng(self, name: str, seed: int) -> RandomStreams:
        """Register a random generator on each process; all generators derive from one seed.

        Remaining processes continue their stream; a joining process starts a stream that no process
        has used. The same seed and the same sequence of sizes give the same numbers.

        Args:
            name: unique in the job.
            seed: 0 or more, the same on all processes.

        Returns:
            The handle of the generator.

        Raises:
            DuplicateName: the name is taken.
            LateRegistration: inside a loop.
            ValueError: the seed is negative or not a whole number.
        """
        (seed,) = as_counts(f"rng {name!r}", seed=seed)
        streams = RandomStreams(self._member, name, seed)
        return self._register(streams, streams.start_with)

    def custom(
        self,
        name: str,
        *,
        init: Callable[[int, int], V],
        pack: Pack[V],
        unpack: Unpack[V],
    ) -> Custom[V]:
        """Register one value on each process that only the program itself can divide and combine.

        Args:
            name: unique in the job.
            init: gets rank and number of processes, returns this process's first value.
            pack: gets the value and a number of processes; returns a bytes-like object for each
                new rank, in order: the part of the value for that rank.
            unpack: gets the parts that all old ranks packed for this process, in order, its rank
                and the number of processes; returns the new value.

        Returns:
            The handle of the value.

        Raises:
            DuplicateName: the name is taken.
            LateRegistration: inside a loop.
        """
        value = Custom(self._member, name, pack, unpack)
        return self._register(value, lambda: value.start_with(init))

    def _register(
        self, entry: EntryT, start: Callable[[], object], *, constant: bool = False
    ) -> EntryT:
        self._check_early(entry.name)
        if constant:
            assert isinstance(entry, Handle)
            kept = Constant(entry, self._data.can_prefetch)
            self._data.registry.add(kept)
            self._data.constants.append(kept)
        else:
            self._data.registry.add(entry)
        if not self.joining:
            with self._member.allow_communicator():
                start()
        return entry

    def _is_constant(self, handle: Handle) -> bool:
        return any(constant.handle is handle for constant in self._data.constants)

    def _check_early(self, what: str) -> None:
        if self._member.phase is not MembershipPhase.JOINING:
            self._member.check()
        if self._loops.active:
            raise LateRegistration(
                f"{what!r} is registered inside a loop: joining ranks would miss it"
            )


def as_shape(shape: int | tuple[int, ...], what: str = "shape") -> tuple[int, ...]:
    """Return a shape as a tuple; a single number is the length of one axis.

    Args:
        shape: As the program gave it.
        what: The argument, as errors name it.

    Raises:
        ValueError: The shape contains something other than whole numbers.
    """
    try:
        lengths = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        return tuple(operator.index(length) for length in lengths)
    except TypeError:
        raise ValueError(f"{what} {shape!r}: write whole numbers, as 1000 or (1000, 3)") from None


def as_counts(what: str, **values: Any) -> list[int]:
    """Return the given numbers as a list of ``int``; any integer type (numpy's, too) is accepted.

    Args:
        what: The object, as errors name it.
        values: The numbers by the names of the program's arguments.

    Raises:
        ValueError: A value is not a whole number.
    """
    counts = []
    for name, value in values.items():
        try:
            counts.append(operator.index(value))
        except TypeError:
            raise ValueError(f"{what}: {name}={value!r} is no whole number") from None
    return counts
