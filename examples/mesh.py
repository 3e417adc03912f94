"""The mesh of `amr`: blocks of cells on levels, each with half the cell width of the previous one.

Every process knows the rank of every block, and all processes make the same decisions on which
blocks are split and joined. The blocks have a global order, in which the parts of a block are
consecutive, so the result does not depend on the distribution.
"""

from itertools import product

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

#: Level, and position among the blocks of this level.
Key = tuple[int, int, int]
#: The rank of each block of the mesh.
Where = dict[Key, int]
#: The number of cells along an edge of a block, and of level 0 blocks along an edge of the domain.
N, ROOTS = 8, 4
BLOCK = np.dtype([("key", "i8", 3), ("u", "f8", (N, N))])
Blocks = NDArray[np.void]
#: Differences between cells from which on a block is split, and below which four are joined.
STEEP, SMOOTH = 0.15, 0.1
#: Axis and direction.
SIDES = tuple(product((0, 1), (-1, 1)))
CORNERS = tuple(product((0, 1), (0, 1)))


def keys(blocks: Blocks) -> list[Key]:
    return [(level, i, j) for level, i, j in blocks["key"].tolist()]


def parent(key: Key) -> Key:
    level, i, j = key
    return level - 1, i // 2, j // 2


def children(key: Key) -> list[Key]:
    level, i, j = key
    return [(level + 1, 2 * i + di, 2 * j + dj) for di, dj in CORNERS]


def across(key: Key, axis: int, step: int, where: Where) -> list[Key]:
    """Return the neighbours on a side of a block: one block, or two finer ones."""
    level, *at = key
    at[axis] = (at[axis] + step) % (ROOTS << level)
    same = (level, at[0], at[1])
    for found in (same, parent(same)):
        if found in where:
            return [found]
    return [fine for fine in children(same) if fine[1 + axis] % 2 == (step < 0)]


def around(key: Key, where: Where) -> list[Key]:
    return [other for axis, step in SIDES for other in across(key, axis, step, where)]


def to_split(jumps: dict[Key, float], where: Where, levels: int) -> set[Key]:
    """Return the blocks to split: steep ones, their neighbours, and blocks that become too coarse.

    A block becomes too coarse if a neighbour that is already finer than the block is split.
    """
    split = {
        key
        for key in where
        if key[0] < levels and max(jumps[near] for near in [key, *around(key, where)]) > STEEP
    }
    follow = list(split)
    while follow:
        key = follow.pop()
        coarser = {near for near in around(key, where) if near[0] < key[0]} - split
        split |= coarser
        follow += coarser
    return split


def to_join(jumps: dict[Key, float], where: Where, split: set[Key]) -> set[Key]:
    """Return the parents whose four blocks are to be joined.

    All four must be smooth, and no neighbour of them may be steep, finer or about to be split.
    """

    def may_go(key: Key) -> bool:
        return (
            key in where
            and jumps[key] < SMOOTH
            and all(
                jumps[near] < STEEP and near[0] + (near in split) <= key[0]
                for near in around(key, where)
            )
        )

    parents = {parent(key) for key in where if key[0] > 0}
    return {key for key in parents if all(may_go(child) for child in children(key))}


def remesh(blocks: Blocks, comm: MPI.Intracomm, levels: int) -> Blocks:
    """Return the local blocks after splitting and joining, in the global order."""
    where = directory(blocks, comm)
    steps = [np.abs(np.diff(blocks["u"], axis=axis)).max(axis=(1, 2)) for axis in (1, 2)]
    here = dict(zip(keys(blocks), np.maximum(*steps).tolist(), strict=True))
    jumps = {key: jump for part in comm.allgather(here) for key, jump in part.items()}
    split = to_split(jumps, where, levels)
    join = to_join(jumps, where, split)
    # Four blocks are joined on the process of the first of them.
    go = [where[children(up)[0]] if (up := parent(k)) in join else comm.rank for k in keys(blocks)]
    blocks = np.concatenate(
        comm.alltoall([blocks[np.array(go, int) == rank] for rank in range(comm.size)])
    )
    made = []
    for place, key in enumerate(keys(blocks)):
        if key in split:
            made.append(quarters(blocks[place]))
        elif parent(key) not in join:
            made.append(blocks[place : place + 1])
        elif key == children(parent(key))[0]:
            made.append(joined(blocks[place : place + 4]))
    return np.concatenate([blocks[:0], *made])


def quarters(block: np.void) -> Blocks:
    four = np.empty(4, BLOCK)
    level, i, j = block["key"].tolist()
    four["key"] = children((level, i, j))
    fine = block["u"].repeat(2, axis=0).repeat(2, axis=1)
    four["u"] = fine.reshape(2, N, 2, N).swapaxes(1, 2).reshape(4, N, N)
    return four


def joined(four: Blocks) -> Blocks:
    one = np.empty(1, BLOCK)
    one["key"] = parent(keys(four)[0])
    fine = four["u"].reshape(2, 2, N, N).swapaxes(1, 2).reshape(2 * N, 2 * N)
    pairs = fine[::2] + fine[1::2]
    one["u"] = 0.25 * (pairs[:, ::2] + pairs[:, 1::2])
    return one


def directory(blocks: Blocks, comm: MPI.Intracomm) -> Where:
    everything = enumerate(comm.allgather(keys(blocks)))
    return {key: rank for rank, part in everything for key in part}
