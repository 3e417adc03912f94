"""Fill new arrays: with the result of ``init``, and with zeros so that the pages exist early."""

import mmap
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pliant.appkit.appkit_errors import DistributionError
from pliant.appkit.redistribution.range_exchange import Array

#: Bytes that `touch_pages` writes to before it asks again whether to stop; whole pages.
SLICE_BYTES = 4096 * mmap.PAGESIZE


def assign_initial(name: str, into: Array, values: Any) -> None:
    """Copy the result of ``init`` into an array; a single value fills all cells.

    Raises:
        DistributionError: The shape differs, or the type cannot be converted.
    """
    try:
        into[...] = values
    except (ValueError, TypeError) as error:
        raise DistributionError(
            f"array {name!r}: init returned {_described(values)} for a part of shape {into.shape} "
            f"and type {into.dtype}: {error}"
        ) from error


def touch_pages(arrays: Iterable[Array], is_withdrawn: Callable[[], bool] | None = None) -> None:
    """Write zeros to new contiguous arrays, so that the system allocates their memory now.

    The first write to a page costs as much time as receiving its data.

    Args:
        arrays: contiguous; their contents are lost.
        is_withdrawn: asked before each slice of `SLICE_BYTES`; if True, no more pages are written.
    """
    for array in arrays:
        if not array.nbytes:
            continue
        content = array.ravel(order="K").view(np.uint8)
        for start in range(0, content.size, SLICE_BYTES):
            if is_withdrawn is not None and is_withdrawn():
                return
            content[start : start + SLICE_BYTES : mmap.PAGESIZE] = 0


def _described(values: Any) -> str:
    if isinstance(values, np.ndarray):
        return f"an array of shape {values.shape} and type {values.dtype}"
    return f"a {type(values).__name__}"
