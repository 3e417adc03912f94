"""Memory of new parts: the first values, from the program's ``init``, and pages ahead of time."""

import mmap
from collections.abc import Iterable
from typing import Any

import numpy as np

from pliant.appkit.errors import DistributionError
from pliant.appkit.redistribution.exchange import Array


def assign_initial(name: str, into: Array, values: Any) -> None:
    """Put what ``init`` returned into a part; a single value fills all of it.

    Raises:
        DistributionError: it is not of that shape, or of a type that cannot become the array's.
    """
    try:
        into[...] = values
    except (ValueError, TypeError) as error:
        raise DistributionError(
            f"array {name!r}: init returned {_described(values)} for a part of shape {into.shape} "
            f"and type {into.dtype}: {error}"
        ) from error


def touch_pages(arrays: Iterable[Array]) -> None:
    """Have the system give the pages of new contiguous arrays now, not when data arrive.

    A page costs as much when it is first written to as the data that go into it.
    """
    for array in arrays:
        if array.nbytes:
            array.ravel(order="K").view(np.uint8)[:: mmap.PAGESIZE] = 0


def _described(values: Any) -> str:
    if isinstance(values, np.ndarray):
        return f"an array of shape {values.shape} and type {values.dtype}"
    return f"a {type(values).__name__}"
