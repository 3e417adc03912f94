"""Items: particles and vectors, by each of the rules."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from pliant.appkit.kinds.item_distribution import ByOwner, Even, ItemDistribution, Weighted
from pliant.appkit.kinds.items import Items
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.layout import BlockLayout
from rankkit.kinds.base import Kind, Numbers
from rankkit.resize import Parts

#: An item with an array in a field.
PARTICLE = np.dtype([("id", "i8"), ("x", "f4", 3)])


class ItemKind(Kind):
    """Items by one of the rules: "even", "weight" or "owner"."""

    cell_bytes = PARTICLE.itemsize

    def __init__(self, title: str, rule: str, total: int = 43, seed: int = 0) -> None:
        super().__init__(title)
        self.rule, self.total, self.seed = rule, total, seed

    def rules(self) -> ItemDistribution:
        """Return the rule; the owner of an item has nothing to do with its place."""
        if self.rule == "weight":
            return Weighted("items", lambda items: self.ids(items) % 5)
        if self.rule == "owner":
            return ByOwner("items", lambda items, size: self.ids(items) * 7 // 3 % size)
        return Even("items")

    def entries(self, membership: Membership) -> list[Any]:
        return [Items(membership, "p", PARTICLE, (), self.rules())]

    def fill(self, entries: list[Any], rank: int, size: int) -> None:
        rng = np.random.default_rng([self.seed, self.total, size])
        counts = rng.multinomial(self.total, rng.dirichlet(np.ones(size)))
        begin = int(counts[:rank].sum())
        entries[0].start_with(lambda *_: self.values(np.arange(begin, begin + counts[rank])))

    def values(self, ids: Any) -> Any:
        """Return the items of these numbers."""
        items = np.zeros(len(ids), PARTICLE)
        items["id"], items["x"] = ids, ids[:, None] + [0.25, 0.5, 0.75]
        return items

    def ids(self, items: Any) -> Any:
        """Return the numbers of items."""
        return items["id"]

    def owners(self, parts: Parts) -> Numbers:
        """Assert that each item is there once and whole: its first owner is any rank."""
        owners = np.full(self.total, -1)
        for rank, (array,) in enumerate(parts):
            own = self.ids(array.local)
            assert np.array_equal(array.local, self.values(own))
            assert (owners[own] == -1).all()
            owners[own] = rank
        assert (owners >= 0).all()
        return owners

    def restored(self, parts: Parts) -> None:
        self.ruled(self.owners(parts), parts, "even" if self.rule == "weight" else self.rule)

    def ruled(self, owners: Numbers, parts: Parts, rule: str) -> None:
        """Assert that the items are distributed by the rule."""
        size, ids = len(parts), np.arange(self.total)
        if rule == "owner":
            assert np.array_equal(owners, ids * 7 // 3 % size)
            return
        order = np.concatenate([self.ids(array.local) for (array,) in parts])
        assert np.array_equal(order, ids), "the order stays"
        if rule == "even":
            lengths = [stop - start for start, stop in BlockLayout(self.total, size).blocks()]
            assert np.array_equal(np.bincount(owners, minlength=size), lengths)
        else:
            weights = np.bincount(owners, ids % 5, size)
            assert weights.max() <= weights.mean() + 4, "by the heaviest item at most"

    def varied(self, random: Random) -> Kind:
        return type(self)(self.title, self.rule, random.randint(0, 80), random.randint(1, 1 << 20))


class VectorItems(ItemKind):
    """Items of several numbers."""

    cell_bytes = 48

    def entries(self, membership: Membership) -> list[Any]:
        return [Items(membership, "v", np.dtype("i8"), (2, 3), self.rules())]

    def values(self, ids: Any) -> Any:
        return ids[:, None, None] * 6 + np.arange(6).reshape(2, 3)

    def ids(self, items: Any) -> Any:
        return items[:, 0, 0] // 6
