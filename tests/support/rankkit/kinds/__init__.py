"""Every kind of data as the contract tests use it: how to register, fill and check it."""

from __future__ import annotations

from pliant.appkit.redistribution.cyclic_layout import square_grid
from rankkit.kinds.base import Kind
from rankkit.kinds.blocks import Block, Replicated, RootOnly, rising
from rankkit.kinds.cells import Cyclic, Partition
from rankkit.kinds.csr_kind import Csr
from rankkit.kinds.item_kinds import ItemKind, VectorItems
from rankkit.kinds.values import CustomWords, Streams

__all__ = [
    "KINDS",
    "TINY_KINDS",
    "Block",
    "Csr",
    "CustomWords",
    "Cyclic",
    "ItemKind",
    "Kind",
    "Partition",
    "Replicated",
    "RootOnly",
    "Streams",
    "VectorItems",
]

KINDS: list[Kind] = [
    Block("block", (97, 2), halo=2),
    Block("block of columns", (2, 97, 3), axis=1, halo=1),
    Block("block with lengths", (40, 3), lengths=rising),
    Replicated("replicated"),
    RootOnly("root_only"),
    ItemKind("items", "even"),
    ItemKind("items by weight", "weight"),
    ItemKind("items by owner", "owner"),
    VectorItems("items of vectors", "even", 20),
    VectorItems("items of vectors by owner", "owner", 20),
    Csr("csr", "rows"),
    Csr("csr by nonzeros", "nnz"),
    Cyclic("cyclic by ones", (41,), (0,), (1,)),
    Cyclic("cyclic rows by threes", (29, 2), (0,), (3,)),
    Cyclic("cyclic columns by twos", (2, 23), (1,), (2,)),
    Cyclic("block_cyclic", (13, 11), (0, 1), (2, 3), square_grid),
    Cyclic("block_cyclic of columns", (3, 19), (0, 1), (2, 1), lambda size: (1, size)),
    Partition("partition"),
    CustomWords("custom"),
    Streams("rng"),
]

#: Some with fewer cells than ranks, or none.
TINY_KINDS: list[Kind] = [
    Block("block of few cells", (4,)),
    Block("block without cells", (0, 3)),
    Csr("csr of few rows", "nnz", 3),
    Cyclic("block_cyclic without cells", (0, 4), (0, 1), (2, 2), square_grid),
]
