"""Cells that lie anywhere, from a checkpoint: read by chunks, kept by those who own them."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pliant.appkit.redistribution.ranges import Array
from pliant.appkit.storage import chunks
from pliant.appkit.storage.chunks import Piece, PieceReader

_Numbers = NDArray[np.int64]

#: Gets places in a piece and returns which of them are wanted, and where they go.
Choice = Callable[[_Numbers], tuple[NDArray[np.bool_], _Numbers]]


def read_cells(source: PieceReader, piece: Piece, into: Array, choice: Choice) -> int:
    """Fill cells from one piece; chunks of which nothing is wanted are not read.

    Args:
        source: where the piece is.
        piece: ``(cells, ...)``.
        into: ``(cells here, ...)``, of any strides.
        choice: what is wanted of it.

    Returns:
        How many cells were filled.

    Raises:
        CheckpointError: it is damaged.
    """
    per_cell = math.prod(into.shape[1:])
    step = max(1, chunks.CHUNK_BYTES // max(1, per_cell * into.dtype.itemsize))
    filled = 0
    for first in range(0, piece.shape[0], step):
        stop = min(first + step, piece.shape[0])
        wanted, places = choice(np.arange(first, stop))
        if len(places):
            chunk = np.empty((stop - first, *into.shape[1:]), into.dtype)
            source.read(piece, first * per_cell, chunk)
            into[places] = chunk[wanted]
            filled += len(places)
    return filled
