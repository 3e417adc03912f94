"""Particles, tasks: rows of which every process has any number; they are shared out anew."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike

from pliant.appkit.data.entry import Description, Known
from pliant.appkit.data.handle import Held
from pliant.appkit.data.metadata import redistribute
from pliant.appkit.errors import DistributionError
from pliant.appkit.kinds.item_rules import Change, Rule
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.plan import Crossing, Plan, Traffic, plan_blocks
from pliant.appkit.redistribution.ranges import Array
from pliant.appkit.storage.chunks import PieceReader, PieceWriter

#: Gets rank and number of processes and returns this process's first items.
ItemInit = Callable[[int, int], Any]


class Items(Held):
    """A handle that stays valid through every resize; its numpy array does not: fetch it anew.

    The items of the job have a global order: those of rank 0, then those of rank 1, and so on. Even
    shares, by number or by weight, keep it, and move the fewest bytes that keep it.
    """

    noun = "items"

    def __init__(
        self,
        membership: Membership,
        name: str,
        dtype: DTypeLike,
        shape: tuple[int, ...],
        rule: Rule,
    ) -> None:
        """Describe them; see ``Job.items``."""
        if any(length < 0 for length in shape):
            raise ValueError(f"items {name!r}: negative length: {shape}")
        super().__init__(membership, name, shape, dtype)
        self.rounds = rule.rounds
        self._rule = rule

    def start_with(self, init: ItemInit | None) -> None:
        """Make the first items of this process."""
        member = self._membership
        self._array = np.empty((0, *self.shape), self.dtype)
        if init is not None:
            self._array = self._fitting(init(member.rank, member.size))

    @property
    def local(self) -> Array:
        """The items here, shape ``(n, *shape)``: to be fetched anew after a safe point.

        Assigning other items, of any number, replaces them; ``len(...)`` of the handle is ``n``.

        Raises:
            DistributionError: what is assigned is not of that shape, or the items are constant.
        """
        return super().local

    @local.setter
    def local(self, values: Any) -> None:
        self._membership.check()
        self.check_change()
        self._array = self._fitting(values)

    def __len__(self) -> int:
        return len(self.local)

    def counts(self) -> list[int]:
        """Items of each process, by rank; collective."""
        counts: list[int] = self._membership.communicator().allgather(len(self.local))
        return counts

    def rebalance(self) -> int:
        """Share them out anew among the present processes, by the same rule; collective.

        Returns:
            Bytes that changed their process, over the whole job.

        Raises:
            DistributionError: ``weight`` or ``owner`` made no sense; all is as it was.
        """
        return redistribute([self], self._membership.communicator())

    def _fitting(self, values: Any) -> Array:
        """As an array of items; not copied if it is one that nobody else can change."""
        array: Array = np.ascontiguousarray(values, self.dtype)
        if array.shape != (len(array), *self.shape):
            raise DistributionError(
                f"items {self.name!r}: an array of shape {array.shape} was given; items of shape "
                f"{self.shape} need ({', '.join(map(str, ('n', *self.shape)))})"
            )
        borrowed = array.base is not None or not array.flags.writeable or array is values
        return array.copy() if borrowed else array

    def describe(self) -> Description:
        """Kind, name, shape and type of an item, and the rule."""
        return ["items", self.name, list(self.shape), self.type_terms, self._rule.kind]

    def census(self, crossing: Crossing, me: int, known: Known) -> Any:
        """How many items are here, or what else the rule has to know."""
        assert self._array is not None
        return self._rule.census(self._array, Change(crossing, me, known))

    def prepare(self, crossing: Crossing, me: int, known: Known) -> None:
        """Allocate the new part."""
        self._change = change = Change(crossing, me, known)
        if change.after is not None:
            count = self._rule.count(change, change.after)
            self._next = np.empty((count, *self.shape), self.dtype)

    def plan(self, crossing: Crossing, known: Known) -> Plan | Traffic:
        """Each item straight to its new owner."""
        return self._rule.plan(Change(crossing, 0, known), self._item_bytes())

    def estimate(self, crossing: Crossing) -> int:
        """As if all had as many as this process."""
        array = self._array
        total = len(crossing.old) * (0 if array is None else len(array))
        return plan_blocks(total, crossing, self._item_bytes()).bytes_moved

    def _item_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def move(self, plan: Plan | Traffic, comm: MPI.Intracomm, tag: int) -> None:
        """Send what goes, receive what comes, copy what stays."""
        self._rule.move(self._change, plan, comm, tag, self._array, self._next)

    def save(self, out: PieceWriter) -> None:
        """Write the items that are here."""
        assert self._array is not None
        out.write(self._array)

    def restore(self, source: PieceReader, rank: int, size: int) -> None:
        """Read a share, evenly by number, or those that this process owns."""
        self._array = self._rule.restore(source, self.shape, self.dtype, (rank, size))

    def __repr__(self) -> str:
        return f"<Items {self.name!r} {self.shape} {self.dtype}, {self._rule.kind}>"
