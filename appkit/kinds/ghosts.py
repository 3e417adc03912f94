"""The columns of a distributed matrix that belong to other processes: numbering and exchange."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit.redistribution.exchange import Array
from pliant.appkit.redistribution.layout import Layout
from pliant.appkit.redistribution.packed import exchange_buffers

#: Of the messages: above those of registered things, within what MPI guarantees.
GHOST_TAG = 32_001


@dataclass(frozen=True)
class Ghosts:
    """Local numbers of columns: the owned ones first, in order, then the ghosts, sorted.

    Of a square matrix, whose columns are distributed like its rows.
    """

    #: For each nonzero its column's local number.
    columns: NDArray[np.int64]
    #: Global numbers of the columns of others.
    numbers: NDArray[np.int64]
    #: Whose they are: of each owner a range of ``numbers``.
    by_owner: dict[int, slice]

    @classmethod
    def find(cls, indices: NDArray[np.int64], layout: Layout, rank: int) -> "Ghosts":
        """Look through the global columns of a process's nonzeros."""
        start, stop = layout.start(rank), layout.stop(rank)
        owned = (indices >= start) & (indices < stop)
        numbers = np.unique(indices[~owned])
        columns = np.where(owned, indices - start, stop - start + np.searchsorted(numbers, indices))
        blocks = [np.searchsorted(numbers, block).tolist() for block in layout.blocks()]
        by_owner = {owner: slice(*ends) for owner, ends in enumerate(blocks) if ends[0] < ends[1]}
        return cls(columns, numbers, by_owner)


class GhostExchange:
    """Which of its rows a process sends to whom; made once for each distribution."""

    def __init__(self, ghosts: Ghosts, start: int, comm: MPI.Intracomm) -> None:
        """Tell the owners what is wanted of them; collective."""
        self._ghosts = ghosts
        wants: list[Any] = [None] * comm.size
        for owner, place in ghosts.by_owner.items():
            wants[owner] = ghosts.numbers[place]
        asked = comm.alltoall(wants)
        self._sends = {
            other: numbers - start for other, numbers in enumerate(asked) if numbers is not None
        }

    def fetch(self, values: Array, comm: MPI.Intracomm) -> Array:
        """The values of the owned rows with those of the ghosts behind; collective.

        Args:
            values: ``(rows here, ...)``.
            comm: the job's communicator.
        """
        own = len(values)
        full = np.empty((own + len(self._ghosts.numbers), *values.shape[1:]), values.dtype)
        full[:own] = values
        receives = {
            owner: full[own + place.start : own + place.stop]
            for owner, place in self._ghosts.by_owner.items()
        }
        sends = {other: values[rows] for other, rows in self._sends.items()}
        exchange_buffers(comm, sends, receives, GHOST_TAG)
        return full
