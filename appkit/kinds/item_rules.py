"""The rules by which items are shared out: evenly by number or by weight in order, or to owners."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit.data.entry import GatheredMetadata
from pliant.appkit.errors import DistributionError
from pliant.appkit.redistribution.exchange import Array, RangeBuffer, exchange_ranges
from pliant.appkit.redistribution.layout import BlockLayout, Layout, UnevenLayout
from pliant.appkit.redistribution.packed import OwnerIndex, PackedBuffer, exchange_packed
from pliant.appkit.redistribution.plan import (
    CellPlan,
    RangePlan,
    RankMap,
    Transfer,
    Transfers,
    plan_layouts,
)
from pliant.appkit.redistribution.splitting import cuts_by_weight, layout_of
from pliant.appkit.storage.chunks import ArrayReader
from pliant.appkit.storage.selective_reader import read_even, read_owned

#: Gets items and returns the weight of each, >= 0.
Weight = Callable[[Array], Any]
#: Gets items and a number of processes and returns the rank that is to own each.
Owner = Callable[[Array, int], Any]


class ItemExchange:
    """One redistribution of items under way on one process."""

    def __init__(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> None:
        """Between the processes of ``rank_map``; this one is ``me``."""
        self.rank_map, self.me, self.gathered = rank_map, me, gathered

    @property
    def before(self) -> int | None:
        """This process's rank before; None: it is a newcomer."""
        return self.rank_map.old.index(self.me) if self.me in self.rank_map.old else None

    @property
    def after(self) -> int | None:
        """This process's rank after; None: it leaves."""
        return self.rank_map.new.index(self.me) if self.me in self.rank_map.new else None

    def from_old_ranks(self, step: int) -> list[Any]:
        """What the old processes said in a round, in the order of ranks."""
        return [self.gathered[step][process] for process in self.rank_map.old]


class ItemDistribution(ABC):
    """Who gets which items; ``what`` names them in errors."""

    kind: str
    metadata_rounds = 1

    def __init__(self, what: str) -> None:
        """Share out what is called so."""
        self._what = what

    @abstractmethod
    def local_metadata(self, items: Array, exchange: ItemExchange) -> Any:
        """What this process tells in the next round."""

    @abstractmethod
    def count(self, exchange: ItemExchange, rank: int) -> int:
        """Items that the process of a new rank gets."""

    @abstractmethod
    def plan(self, exchange: ItemExchange, item_bytes: int) -> RangePlan | CellPlan:
        """Each item straight to its new owner."""

    @abstractmethod
    def move(
        self, exchange: ItemExchange, plan: Any, comm: MPI.Intracomm, tag: int, old: Any, new: Any
    ) -> None:
        """Send what goes, receive what comes, copy what stays.

        Args:
            exchange: under way.
            plan: what ``plan`` gave.
            comm: holds all senders and receivers.
            tag: of the messages.
            old: the items that were here; None: this is a newcomer.
            new: room for those that will be; None: this process leaves.
        """

    def restore(
        self,
        source: ArrayReader,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        place: "RankAndSize",
    ) -> Array:
        """The share of a process from a checkpoint: evenly by number."""
        return read_even(source, shape, dtype, *place)


#: Rank and number of processes.
RankAndSize = tuple[int, int]


class Even(ItemDistribution):
    """By number; the order stays."""

    kind = "even"

    def local_metadata(self, items: Array, exchange: ItemExchange) -> Any:
        """How many items are here."""
        return len(items)

    def layouts(self, exchange: ItemExchange) -> tuple[Layout, Layout]:
        """Before and after."""
        counts: list[int] = exchange.from_old_ranks(0)
        return UnevenLayout.of(counts), BlockLayout(sum(counts), len(exchange.rank_map.new))

    def count(self, exchange: ItemExchange, rank: int) -> int:
        """The length of a block."""
        _, new = self.layouts(exchange)
        return new.stop(rank) - new.start(rank)

    def plan(self, exchange: ItemExchange, item_bytes: int) -> RangePlan:
        """The fewest bytes that keep the order."""
        return plan_layouts(*self.layouts(exchange), exchange.rank_map, item_bytes)

    def move(
        self, exchange: ItemExchange, plan: Any, comm: MPI.Intracomm, tag: int, old: Any, new: Any
    ) -> None:
        """Ranges of items."""
        was, will = self.layouts(exchange)
        here, there = exchange.before, exchange.after
        source = RangeBuffer(old, was.start(here)) if here is not None else None
        target = RangeBuffer(new, will.start(there)) if there is not None else None
        exchange_ranges(plan, comm, source, target, tag)


class Weighted(Even):
    """By weight; the order stays. From a checkpoint it is by number."""

    kind = "weight"
    metadata_rounds = 2

    def __init__(self, what: str, weight: Weight) -> None:
        """Weigh with the program's function."""
        super().__init__(what)
        self._weight = weight

    def local_metadata(self, items: Array, exchange: ItemExchange) -> Any:
        """How many items are here and what they weigh, then where they are cut."""
        weights = self._weigh(items)
        if not exchange.gathered:
            return len(items), float(weights.sum())
        totals = [weight for _, weight in exchange.from_old_ranks(0)]
        assert exchange.before is not None
        return cuts_by_weight(weights, totals, exchange.before, len(exchange.rank_map.new))

    def layouts(self, exchange: ItemExchange) -> tuple[Layout, Layout]:
        """Before and after."""
        counts = [count for count, _ in exchange.from_old_ranks(0)]
        new = layout_of(exchange.from_old_ranks(1), counts, len(exchange.rank_map.new))
        return UnevenLayout.of(counts), new

    def _weigh(self, items: Array) -> NDArray[np.float64]:
        weights = _call(f"{self._what}: weight", self._weight, items).astype(np.float64)
        if weights.shape != (len(items),) or not (np.isfinite(weights) & (weights >= 0)).all():
            raise DistributionError(
                f"{self._what}: weight gave an array of shape {weights.shape} for {len(items)} "
                "items: it must be one finite number, not negative, for each"
            )
        return weights


class ByOwner(ItemDistribution):
    """To whom the program says; what arrives is in the order of those who sent it."""

    kind = "owner"

    def __init__(self, what: str, owner: Owner) -> None:
        """Ask the program's function."""
        super().__init__(what)
        self._owner = owner
        self._by_owner: OwnerIndex | None = None  # of the last census

    def local_metadata(self, items: Array, exchange: ItemExchange) -> Any:
        """How many items go to whom."""
        parts = len(exchange.rank_map.new)
        self._by_owner = OwnerIndex(self._owners(items, parts), parts)
        return self._by_owner.counts

    def count(self, exchange: ItemExchange, rank: int) -> int:
        """What all send there."""
        return int(sum(counts[rank] for counts in exchange.from_old_ranks(0)))

    def plan(self, exchange: ItemExchange, item_bytes: int) -> CellPlan:
        """As the owners are."""
        rank_map = exchange.rank_map
        return Transfers(
            tuple(
                Transfer(source, target, cells)
                for source, counts in zip(rank_map.old, exchange.from_old_ranks(0), strict=True)
                for target, cells in zip(rank_map.new, counts, strict=True)
                if cells
            ),
            item_bytes,
        )

    def move(
        self, exchange: ItemExchange, plan: Any, comm: MPI.Intracomm, tag: int, old: Any, new: Any
    ) -> None:
        """Packed for each owner; what arrives is not packed."""
        rank_map, source, target, by_owner = exchange.rank_map, None, None, self._by_owner
        if old is not None and by_owner is not None:
            ranks = {process: rank for rank, process in enumerate(rank_map.new)}
            source = PackedBuffer(old, lambda to, *cells: by_owner.positions(ranks[to], *cells))
        if exchange.after is not None:
            counts = [own[exchange.after] for own in exchange.from_old_ranks(0)]
            places = dict(zip(rank_map.old, UnevenLayout.of(counts).borders, strict=False))
            target = PackedBuffer(
                new, lambda other, first, stop: slice(places[other] + first, places[other] + stop)
            )
        exchange_packed(plan, comm, source, target, tag)

    def restore(
        self, source: ArrayReader, shape: tuple[int, ...], dtype: np.dtype[Any], place: RankAndSize
    ) -> Array:
        """Those whose owner is this process."""
        rank, size = place
        return read_owned(source, shape, dtype, rank, lambda items: self._owners(items, size))

    def _owners(self, items: Array, size: int) -> NDArray[np.int64]:
        owners = _call(f"{self._what}: owner", self._owner, items, size)
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


def _call(what: str, function: Callable[..., Any], items: Array, *more: int) -> Array:
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
