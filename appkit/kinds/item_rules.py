"""The rules by which items are shared out: evenly by number or by weight in order, or to owners."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit.data.entry import Known
from pliant.appkit.errors import DistributionError
from pliant.appkit.redistribution.cuts import cuts_by_weight, layout_of
from pliant.appkit.redistribution.layout import BlockLayout, Layout, UnevenLayout
from pliant.appkit.redistribution.packed import End, Sorted, carry_cells
from pliant.appkit.redistribution.plan import Crossing, Plan, Share, Traffic, plan_layouts
from pliant.appkit.redistribution.ranges import Array, Side, carry_out
from pliant.appkit.storage.chunks import PieceReader
from pliant.appkit.storage.item_reader import read_even, read_owned

#: Gets items and returns the weight of each, >= 0.
Weight = Callable[[Array], Any]
#: Gets items and a number of processes and returns the rank that is to own each.
Owner = Callable[[Array, int], Any]


class Change:
    """One redistribution of items under way on one process."""

    def __init__(self, crossing: Crossing, me: int, known: Known) -> None:
        """Between the processes of ``crossing``; this one is ``me``."""
        self.crossing, self.me, self.known = crossing, me, known

    @property
    def before(self) -> int | None:
        """This process's rank before; None: it is a newcomer."""
        return self.crossing.old.index(self.me) if self.me in self.crossing.old else None

    @property
    def after(self) -> int | None:
        """This process's rank after; None: it leaves."""
        return self.crossing.new.index(self.me) if self.me in self.crossing.new else None

    def told(self, step: int) -> list[Any]:
        """What the old processes said in a round, in the order of ranks."""
        return [self.known[step][process] for process in self.crossing.old]


class Rule(ABC):
    """Who gets which items; ``what`` names them in errors."""

    kind: str
    rounds = 1

    def __init__(self, what: str) -> None:
        """Share out what is called so."""
        self._what = what

    @abstractmethod
    def census(self, items: Array, change: Change) -> Any:
        """What this process tells in the next round."""

    @abstractmethod
    def count(self, change: Change, rank: int) -> int:
        """Items that the process of a new rank gets."""

    @abstractmethod
    def plan(self, change: Change, item_bytes: int) -> Plan | Traffic:
        """Each item straight to its new owner."""

    @abstractmethod
    def move(
        self, change: Change, plan: Any, comm: MPI.Intracomm, tag: int, old: Any, new: Any
    ) -> None:
        """Send what goes, receive what comes, copy what stays.

        Args:
            change: under way.
            plan: what ``plan`` gave.
            comm: holds all senders and receivers.
            tag: of the messages.
            old: the items that were here; None: this is a newcomer.
            new: room for those that will be; None: this process leaves.
        """

    def restore(
        self, source: PieceReader, shape: tuple[int, ...], dtype: np.dtype[Any], place: "Place"
    ) -> Array:
        """The share of a process from a checkpoint: evenly by number."""
        return read_even(source, shape, dtype, *place)


#: Rank and number of processes.
Place = tuple[int, int]


class Evenly(Rule):
    """By number; the order stays."""

    kind = "even"

    def census(self, items: Array, change: Change) -> Any:
        """How many items are here."""
        return len(items)

    def layouts(self, change: Change) -> tuple[Layout, Layout]:
        """Before and after."""
        counts: list[int] = change.told(0)
        return UnevenLayout.of(counts), BlockLayout(sum(counts), len(change.crossing.new))

    def count(self, change: Change, rank: int) -> int:
        """The length of a block."""
        _, new = self.layouts(change)
        return new.stop(rank) - new.start(rank)

    def plan(self, change: Change, item_bytes: int) -> Plan:
        """The fewest bytes that keep the order."""
        return plan_layouts(*self.layouts(change), change.crossing, item_bytes)

    def move(
        self, change: Change, plan: Any, comm: MPI.Intracomm, tag: int, old: Any, new: Any
    ) -> None:
        """Ranges of items."""
        was, will = self.layouts(change)
        here, there = change.before, change.after
        source = Side(old, was.start(here)) if here is not None else None
        target = Side(new, will.start(there)) if there is not None else None
        carry_out(plan, comm, source, target, tag)


class ByWeight(Evenly):
    """By weight; the order stays. From a checkpoint it is by number."""

    kind = "weight"
    rounds = 2

    def __init__(self, what: str, weight: Weight) -> None:
        """Weigh with the program's function."""
        super().__init__(what)
        self._weight = weight

    def census(self, items: Array, change: Change) -> Any:
        """How many items are here and what they weigh, then where they are cut."""
        weights = self._weigh(items)
        if not change.known:
            return len(items), float(weights.sum())
        totals = [weight for _, weight in change.told(0)]
        assert change.before is not None
        return cuts_by_weight(weights, totals, change.before, len(change.crossing.new))

    def layouts(self, change: Change) -> tuple[Layout, Layout]:
        """Before and after."""
        counts = [count for count, _ in change.told(0)]
        new = layout_of(change.told(1), counts, len(change.crossing.new))
        return UnevenLayout.of(counts), new

    def _weigh(self, items: Array) -> NDArray[np.float64]:
        weights = _ask(f"{self._what}: weight", self._weight, items).astype(np.float64)
        if weights.shape != (len(items),) or not (np.isfinite(weights) & (weights >= 0)).all():
            raise DistributionError(
                f"{self._what}: weight gave an array of shape {weights.shape} for {len(items)} "
                "items: it must be one finite number, not negative, for each"
            )
        return weights


class ToOwners(Rule):
    """To whom the program says; what arrives is in the order of those who sent it."""

    kind = "owner"

    def __init__(self, what: str, owner: Owner) -> None:
        """Ask the program's function."""
        super().__init__(what)
        self._owner = owner
        self._sorted: Sorted | None = None  # of the last census

    def census(self, items: Array, change: Change) -> Any:
        """How many items go to whom."""
        parts = len(change.crossing.new)
        self._sorted = Sorted(self._owners(items, parts), parts)
        return self._sorted.counts

    def count(self, change: Change, rank: int) -> int:
        """What all send there."""
        return int(sum(counts[rank] for counts in change.told(0)))

    def plan(self, change: Change, item_bytes: int) -> Traffic:
        """As the owners are."""
        crossing = change.crossing
        return Traffic(
            tuple(
                Share(source, target, cells)
                for source, counts in zip(crossing.old, change.told(0), strict=True)
                for target, cells in zip(crossing.new, counts, strict=True)
                if cells
            ),
            item_bytes,
        )

    def move(
        self, change: Change, plan: Any, comm: MPI.Intracomm, tag: int, old: Any, new: Any
    ) -> None:
        """Packed for each owner; what arrives is not packed."""
        crossing, source, target, by_owner = change.crossing, None, None, self._sorted
        if old is not None and by_owner is not None:
            ranks = {process: rank for rank, process in enumerate(crossing.new)}
            source = End(old, lambda to, *cells: by_owner.positions(ranks[to], *cells))
        if change.after is not None:
            counts = [own[change.after] for own in change.told(0)]
            places = dict(zip(crossing.old, UnevenLayout.of(counts).borders, strict=False))
            target = End(
                new, lambda other, first, stop: slice(places[other] + first, places[other] + stop)
            )
        carry_cells(plan, comm, source, target, tag)

    def restore(
        self, source: PieceReader, shape: tuple[int, ...], dtype: np.dtype[Any], place: Place
    ) -> Array:
        """Those whose owner is this process."""
        rank, size = place
        return read_owned(source, shape, dtype, rank, lambda items: self._owners(items, size))

    def _owners(self, items: Array, size: int) -> NDArray[np.int64]:
        owners = _ask(f"{self._what}: owner", self._owner, items, size)
        if owners.shape != (len(items),) or owners.dtype.kind not in "iu":
            raise DistributionError(
                f"{self._what}: owner gave an array of shape {owners.shape} and type "
                f"{owners.dtype} for {len(items)} items: it must be one rank for each"
            )
        if len(owners) and not 0 <= owners.min() <= owners.max() < size:
            wrong = owners.min() if owners.min() < 0 else owners.max()
            raise DistributionError(
                f"{self._what}: owner gave rank {wrong}: there are ranks 0 to {size - 1}"
            )
        return owners.astype(np.int64)


def _ask(what: str, function: Callable[..., Any], items: Array, *more: int) -> Array:
    """Call the program's own function, also with no items, for which it may return a plain list.

    Raises:
        DistributionError: it raised something.
    """
    if not len(items):
        return np.empty(0, np.int64)
    try:
        return np.asarray(function(items, *more))
    except Exception as error:
        raise DistributionError(f"{what} raised {type(error).__name__}: {error}") from error
