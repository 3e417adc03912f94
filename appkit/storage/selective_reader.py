"""Read the cells or items of one process from the arrays that all processes saved. No MPI."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.appkit.redistribution.layout import BlockLayout
from pliant.appkit.redistribution.range_exchange import Array
from pliant.appkit.storage import array_files
from pliant.appkit.storage.array_files import ArrayReader, SavedArray


def read_even(
    source: ArrayReader, shape: tuple[int, ...], dtype: np.dtype[Any], rank: int, size: int
) -> Array:
    """Read only this process's even share of the saved items, in their global order.

    Args:
        source: One array ``(n, *shape)`` for each process that had items.
        shape: The shape of an item.
        dtype: The type of an item.
        rank: The process that gets the share.
        size: Number of processes.

    Raises:
        CheckpointError: Data are missing or damaged.
    """
    layout = BlockLayout(sum(saved.shape[0] for saved in source.arrays), size)
    start, stop = layout.start(rank), layout.stop(rank)
    items = np.empty((stop - start, *shape), dtype)
    begin = 0
    for saved in source.arrays:
        low, high = max(begin, start), min(begin + saved.shape[0], stop)
        if low < high:
            into = items[low - start : high - start]
            source.read(saved, (low - begin) * math.prod(shape), into)
        begin += saved.shape[0]
    return items


def read_owned(
    source: ArrayReader,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    rank: int,
    owners: Callable[[Array], NDArray[np.int64]],
) -> Array:
    """Read the saved items that belong to ``rank``.

    All items are read twice, one chunk at a time. The first pass counts the items of this process,
    so that memory is needed for its share and one chunk only.

    Args:
        source: One array ``(n, *shape)`` for each process that had items.
        shape: The shape of an item.
        dtype: The type of an item.
        rank: The process that gets its items.
        owners: Gets items, returns the rank that owns each.

    Raises:
        CheckpointError: Data are missing or damaged.
        DistributionError: The program's function does not return valid owners.
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


def _chunks(source: ArrayReader, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[Array]:
    per_item = math.prod(shape)
    step = max(1, array_files.CHUNK_BYTES // max(1, per_item * dtype.itemsize))
    for saved in source.arrays:
        for first in range(0, saved.shape[0], step):
            chunk = np.empty((min(step, saved.shape[0] - first), *shape), dtype)
            source.read(saved, first * per_item, chunk)
            yield chunk


_Numbers = NDArray[np.int64]

#: Gets cell numbers in a saved array; returns which are wanted, and their places in the target.
Choice = Callable[[_Numbers], tuple[NDArray[np.bool_], _Numbers]]


def read_cells(source: ArrayReader, saved: SavedArray, into: Array, choice: Choice) -> int:
    """Copy the cells that ``choice`` selects from one saved array into an array.

    Chunks of the file without such cells are not read.

    Args:
        source: Reads the array.
        saved: An array of shape ``(cells, ...)``.
        into: The target, shape ``(cells here, ...)``, with any strides.
        choice: Gets cell numbers in the saved array, returns which are wanted and where in ``into``
            they belong.

    Returns:
        Number of cells that were filled.

    Raises:
        CheckpointError: The saved array is damaged.
    """
    per_cell = math.prod(into.shape[1:])
    step = max(1, array_files.CHUNK_BYTES // max(1, per_cell * into.dtype.itemsize))
    filled = 0
    for first in range(0, saved.shape[0], step):
        stop = min(first + step, saved.shape[0])
        wanted, places = choice(np.arange(first, stop))
        if len(places):
            chunk = np.empty((stop - first, *into.shape[1:]), into.dtype)
            source.read(saved, first * per_cell, chunk)
            into[places] = chunk[wanted]
            filled += len(places)
    return filled
