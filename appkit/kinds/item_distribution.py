"""The rules that distribute items: in equal numbers, by equal weight, or by owner."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit.appkit_errors import DistributionError
from pliant.appkit.data.registered_data import GatheredMetadata
from pliant.appkit.redistribution.block_partitioning import cuts_by_weight, layout_of
from pliant.appkit.redistribution.layout import BlockLayout, Layout, UnevenLayout
from pliant.appkit.redistribution.packed_exchange import OwnerIndex, PackedBuffer, exchange_packed
from pliant.appkit.redistribution.range_exchange import Array, RangeBuffer, exchange_ranges
from pliant.appkit.redistribution.transfer_plan import (
    CellPlan,
    RangePlan,
    RankMap,
    Transfer,
    Transfers,
    plan_layouts,
)
from pliant.appkit.storage.array_files import ArrayReader
from pliant.appkit.storage.selective_reader import read_even, read_owned

#: Gets items; returns the weight of each, >= 0.
Weight = Callable[[Array], Any]
#: Gets items and a number of processes; returns the owner rank of each item.
Owner = Callable[[Array, int], Any]


class ItemExchange:
    """One redistribution of items as one process sees it, with the metadata gathered so far."""

    def __init__(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> None:
        """Describe a redistribution.

        Args:
            rank_map: the processes before and after.
            me: this process, as numbered in ``rank_map``.
            gathered: the metadata of the rounds that are complete.
        """
        self.rank_map, self.me, self.gathered = rank_map, me, gathered

    @property
    def before(self) -> int | None:
        """Return the rank of this process before the redistribution; None if it is joining."""
        return self.rank_map.old.index(self.me) if self.me in self.rank_map.old else None

    @property
    def after(self) -> int | None:
        """Return the rank of this process after the redistribution; None if it is leaving."""
        return self.rank_map.new.index(self.me) if self.me in self.rank_map.new else None

    def from_old_ranks(self, step: int) -> list[Any]:
        """Return each old process's contribution to metadata round ``step``, in rank order."""
        return [self.gathered[step][process] for process in self.rank_map.old]


class ItemDistribution(ABC):
    """A rule that decides which process owns which items."""

    kind: str
    metadata_rounds = 1

    def __init__(self, what: str) -> None:
        """Create the rule; ``what`` names the items in error messages."""
        self._what = what

    @abstractmethod
    def local_metadata(self, items: Array, exchange: ItemExchange) -> Any:
        """Return what the other processes must know about this process's items to make the plan.

        All processes exchange these results, ``metadata_rounds`` times. ``exchange`` has the
        results of earlier rounds.
        """

    @abstractmethod
    def count(self, exchange: ItemExchange, rank: int) -> int:
        """Return how many items rank ``rank`` will have after the redistribution."""

    @abstractmethod
    def plan(self, exchange: ItemExchange, item_bytes: int) -> RangePlan | CellPlan:
        """Return the transfers of a redistribution: each item goes straight to its new owner."""

    @abstractmethod
    def move(
        self, exchange: ItemExchange, plan: Any, comm: MPI.Intracomm, tag: int, old: Any, new: Any
    ) -> None:
        """Send the items that leave, receive those that arrive, and copy those that stay.

        Args:
            exchange: This redistribution.
            plan: The result of `plan`.
            comm: Contains all senders and receivers.
            tag: The tag of the messages.
            old: The old items of this process, None if it is joining.
            new: The array for its new items, None if it is leaving.
        """

    def restore(
        self,
        source: ArrayReader,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        place: "RankAndSize",
    ) -> Array:
        """Return the items from a checkpoint that belong to one process.

        Without an override, all processes get equal numbers of items.

        Args:
            source: reads the saved items.
            shape: the shape of one item.
            dtype: the type of an item.
            place: the rank of the process, and the number of processes.
        """
        return read_even(source, shape, dtype, *place)


#: A rank and the number of processes.
RankAndSize = tuple[int, int]


class Even(ItemDistribution):
    """A rule that gives all processes equal numbers of items and keeps their global order."""

    kind = "even"

    def local_metadata(self, items: Array, exchange: ItemExchange) -> Any:
        """Return the number of items of this process."""
        return len(items)

    def layouts(self, exchange: ItemExchange) -> tuple[Layout, Layout]:
        """Return how many consecutive items each rank has before and after the redistribution."""
        counts: list[int] = exchange.from_old_ranks(0)
        return UnevenLayout.of(counts), BlockLayout(sum(counts), len(exchange.rank_map.new))

    def count(self, exchange: ItemExchange, rank: int) -> int:
        """Return how many items rank ``rank`` will have after the redistribution."""
        _, new = self.layouts(exchange)
        return new.stop(rank) - new.start(rank)

    def plan(self, exchange: ItemExchange, item_bytes: int) -> RangePlan:
        """Return the transfers that keep the order of all items and send the fewest bytes."""
        return plan_layouts(*self.layouts(exchange), exchange.rank_map, item_bytes)

    def move(
        self, exchange: ItemExchange, plan: Any, comm: MPI.Intracomm, tag: int, old: Any, new: Any
    ) -> None:
        """Send and receive contiguous ranges of items."""
        was, will = self.layouts(exchange)
        here, there = exchange.before, exchange.after
        source = RangeBuffer(old, was.start(here)) if here is not None else None
        target = RangeBuffer(new, will.start(there)) if there is not None else None
        exchange_ranges(plan, comm, source, target, tag)


class Weighted(Even):
    """A rule that gives all processes items of about equal total weight, and keeps their order.

    After a restart from a checkpoint, all processes have equal numbers of items instead.
    """

    kind = "weight"
    metadata_rounds = 2

    def __init__(self, what: str, weight: Weight) -> None:
        """Create the rule.

        Args:
            what: names the items in error messages.
            weight: the program's function; gets items, returns the weight of each.
        """
        super().__init__(what)
        self._weight = weight

    def local_metadata(self, items: Array, exchange: ItemExchange) -> Any:
        """Return the contribution of this process to the next round of the metadata exchange.

        In the first round, that is the number of its items and their weight; in the second round,
        the borders between new blocks that fall among its items.
        """
        weights = self._weigh(items)
        if not exchange.gathered:
            return len(items), float(weights.sum())
        totals = [weight for _, weight in exchange.from_old_ranks(0)]
        assert exchange.before is not None
        return cuts_by_weight(weights, totals, exchange.before, len(exchange.rank_map.new))

    def layouts(self, exchange: ItemExchange) -> tuple[Layout, Layout]:
        """Return how many consecutive items each rank has before and after the redistribution."""
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
    """A rule that sends each item to the rank that a function of the program returns for it.

    A process has the items it received in the order of the ranks that sent them.
    """

    kind = "owner"

    def __init__(self, what: str, owner: Owner) -> None:
        """Create the rule.

        Args:
            what: names the items in error messages.
            owner: the program's function; gets items and a number of processes, returns the owner
                rank of each item.
        """
        super().__init__(what)
        self._owner = owner
        self._by_owner: OwnerIndex | None = None  # of the last local_metadata

    def local_metadata(self, items: Array, exchange: ItemExchange) -> Any:
        """Call the program's ``owner``, and return how many items go from here to each new rank."""
        parts = len(exchange.rank_map.new)
        self._by_owner = OwnerIndex(self._owners(items, parts), parts)
        return self._by_owner.counts

    def count(self, exchange: ItemExchange, rank: int) -> int:
        """Return how many items all processes together send to new rank ``rank``."""
        return int(sum(counts[rank] for counts in exchange.from_old_ranks(0)))

    def plan(self, exchange: ItemExchange, item_bytes: int) -> CellPlan:
        """Return the transfers of a redistribution: each item goes to the rank that owns it."""
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
        """Pack the items for each owner and exchange them; arriving items are received in place."""
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
        """Return the items from a checkpoint that the program's ``owner`` assigns to this process.

        Args:
            source: reads the saved items.
            shape: the shape of one item.
            dtype: the type of an item.
            place: the rank of the process, and the number of processes.
        """
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
    """Return the result of a function of the program for items, as an array.

    Without items, the function is not called, and the result is an empty array.

    Args:
        what: the name of the function, for errors.
        function: the function.
        items: its first argument.
        more: its further arguments.

    Raises:
        DistributionError: The function raised an exception.
    """
    if not len(items):
        return np.empty(0, np.int64)
    try:
        return np.asarray(function(items, *more))
    except Exception as error:
        raise DistributionError(f"{what} raised {type(error).__name__}: {error}") from error
