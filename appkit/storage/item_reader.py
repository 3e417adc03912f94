"""Items from a checkpoint: each process gets its share of what all had written. No MPI."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.appkit.redistribution.layout import BlockLayout
from pliant.appkit.redistribution.ranges import Array
from pliant.appkit.storage import chunks
from pliant.appkit.storage.chunks import PieceReader


def read_even(
    source: PieceReader, shape: tuple[int, ...], dtype: np.dtype[Any], rank: int, size: int
) -> Array:
    """An even share by number, in the global order; nothing else is read.

    Args:
        source: what was written, one piece ``(n, *shape)`` for each process that had items.
        shape: of an item.
        dtype: of an item.
        rank: whose share it is.
        size: number of processes.

    Raises:
        CheckpointError: something is missing or damaged.
    """
    layout = BlockLayout(sum(piece.shape[0] for piece in source.pieces), size)
    start, stop = layout.start(rank), layout.stop(rank)
    items = np.empty((stop - start, *shape), dtype)
    begin = 0
    for piece in source.pieces:
        low, high = max(begin, start), min(begin + piece.shape[0], stop)
        if low < high:
            into = items[low - start : high - start]
            source.read(piece, (low - begin) * math.prod(shape), into)
        begin += piece.shape[0]
    return items


def read_owned(
    source: PieceReader,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    rank: int,
    owners: Callable[[Array], NDArray[np.int64]],
) -> Array:
    """The items whose owner is ``rank``: all are read twice, a chunk at a time.

    The first time they are counted, so that there is never more in memory than the share.

    Raises:
        CheckpointError: something is missing or damaged.
        DistributionError: the program's own function does not say to whom an item belongs.
    """
    parts = _chunks(source, shape, dtype)
    count = sum(int((owners(chunk) == rank).sum()) for chunk in parts)
    items = np.empty((count, *shape), dtype)
    filled = 0
    for chunk in _chunks(source, shape, dtype):
        mine = chunk[owners(chunk) == rank]
        items[filled : filled + len(mine)] = mine
        filled += len(mine)
    return items


def _chunks(source: PieceReader, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[Array]:
    per_item = math.prod(shape)
    step = max(1, chunks.CHUNK_BYTES // max(1, per_item * dtype.itemsize))
    for piece in source.pieces:
        for first in range(0, piece.shape[0], step):
            chunk = np.empty((min(step, piece.shape[0] - first), *shape), dtype)
            source.read(piece, first * per_item, chunk)
            yield chunk
