"""Ghosts: the columns of a matrix that other processes own. Number and exchange them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit.mpi import tags
from pliant.appkit.redistribution.layout import Layout
from pliant.appkit.redistribution.packed_exchange import exchange_buffers
from pliant.appkit.redistribution.range_exchange import Array


@dataclass(frozen=True)
class Ghosts:
    """The ghosts of one process in a square matrix, and its local column numbers.

    Ghosts are the columns with nonzeros here that other processes own; columns are distributed like
    rows. Local numbers count the owned columns first, then the ghosts by rising global number.
    """

    #: The local column number of each nonzero.
    columns: NDArray[np.int64]
    #: The global numbers of the ghosts, sorted.
    numbers: NDArray[np.int64]
    #: For each owner, its range of ``numbers``.
    by_owner: dict[int, slice]

    @classmethod
    def find(cls, indices: NDArray[np.int64], layout: Layout, rank: int) -> "Ghosts":
        """Return the ghosts of process ``rank``: the columns in ``indices`` that others own.

        Args:
            indices: the global column of each nonzero of the process.
            layout: which process owns which columns.
            rank: the process.
        """
        start, stop = layout.start(rank), layout.stop(rank)
        owned = (indices >= start) & (indices < stop)
        numbers = np.unique(indices[~owned])
        columns = np.where(owned, indices - start, stop - start + np.searchsorted(numbers, indices))
        blocks = [np.searchsorted(numbers, block).tolist() for block in layout.blocks()]
        by_owner = {owner: slice(*ends) for owner, ends in enumerate(blocks) if ends[0] < ends[1]}
        return cls(columns, numbers, by_owner)


class GhostExchange:
    """Fetches the values of this process's ghosts from the processes that own them.

    The object stores which rows this process sends to each other process. It is made once for each
    distribution of the matrix.
    """

    def __init__(self, ghosts: Ghosts, start: int, comm: MPI.Intracomm) -> None:
        """Find out which values each process must send to each other process; collective.

        Args:
            ghosts: the columns of other processes that this process needs.
            start: the first row that this process owns.
            comm: the job's communicator.
        """
        self._ghosts = ghosts
        wants: list[Any] = [None] * comm.size
        for owner, place in ghosts.by_owner.items():
            wants[owner] = ghosts.numbers[place]
        asked = comm.alltoall(wants)
        self._sends = {
            other: numbers - start for other, numbers in enumerate(asked) if numbers is not None
        }

    def fetch(self, values: Array, comm: MPI.Intracomm) -> Array:
        """Return the given values of the owned rows, then the values of the ghosts; collective.

        Args:
            values: The owned values, ``(rows here, ...)``.
            comm: The job's communicator.
        """
        own = len(values)
        full = np.empty((own + len(self._ghosts.numbers), *values.shape[1:]), values.dtype)
        full[:own] = values
        receives = {
            owner: full[own + place.start : own + place.stop]
            for owner, place in self._ghosts.by_owner.items()
        }
        sends = {other: values[rows] for other, rows in self._sends.items()}
        exchange_buffers(comm, sends, receives, tags.GHOSTS)
        return full
