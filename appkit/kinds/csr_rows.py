"""Rows of a sparse matrix as three arrays: check them, save them, read them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.appkit.appkit_errors import CheckpointError, DistributionError
from pliant.appkit.redistribution.block_partitioning import cuts_by_weight, layout_of
from pliant.appkit.redistribution.layout import Layout, UnevenLayout
from pliant.appkit.redistribution.range_exchange import Array
from pliant.appkit.storage.array_files import ArrayReader, ArrayWriter, SavedArray


@dataclass(frozen=True)
class CsrRows:
    """Rows in CSR form.

    Row ``i`` has the columns ``indices[indptr[i]:indptr[i + 1]]``, with the values in the same
    range of ``data``.
    """

    indptr: NDArray[np.int64]
    #: Global column numbers.
    indices: NDArray[np.int64]
    data: Array

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Return the number of nonzeros of each row."""
        return np.diff(self.indptr)

    @classmethod
    def empty(cls, rows: int, nonzeros: int, dtype: np.dtype[Any]) -> "CsrRows":
        """Return rows with allocated arrays, whose column numbers and values are not set yet."""
        indptr, indices = np.zeros(rows + 1, np.int64), np.empty(nonzeros, np.int64)
        return cls(indptr, indices, np.empty(nonzeros, dtype))

    @classmethod
    def checked_copy(
        cls, what: str, values: Any, rows: int, columns: int, dtype: np.dtype[Any]
    ) -> "CsrRows":
        """Check the CSR rows that a program gave, and return copies of their arrays.

        Args:
            what: the name of the matrix, for errors.
            values: ``indptr``, ``indices`` and ``data``, or an object that has these attributes.
            rows: the number of rows that are expected.
            columns: the number of columns of the matrix.
            dtype: the type of a nonzero.

        Raises:
            DistributionError: The arrays do not describe that number of rows and columns.
        """
        if hasattr(values, "indptr"):
            values = (values.indptr, values.indices, values.data)
        try:
            indptr, indices, data = values
        except (TypeError, ValueError) as error:
            raise DistributionError(f"{what}: indptr, indices and data are needed") from error
        made = cls(np.array(indptr, np.int64), np.array(indices, np.int64), np.array(data, dtype))
        fault = made._fault(rows, columns)
        if fault:
            raise DistributionError(f"{what}: {fault}")
        return made

    def _fault(self, rows: int, columns: int) -> str:
        if self.indptr.shape != (rows + 1,):
            return f"indptr has shape {self.indptr.shape}: it must be ({rows + 1},) for {rows} rows"
        if self.indptr[0] != 0 or (self.lengths < 0).any():
            return "indptr must begin with 0 and never fall"
        count = int(self.indptr[-1])
        if not self.indices.shape == self.data.shape == (count,):
            return (
                f"indptr ends with {count}, but indices have shape {self.indices.shape} and data "
                f"{self.data.shape}"
            )
        if count and not 0 <= self.indices.min() <= self.indices.max() < columns:
            return f"indices must be global columns, 0 to {columns - 1}"
        return ""

    def save(self, out: ArrayWriter, start: int) -> None:
        """Write the rows; ``start`` is the global number of the first one."""
        out.write(self.indptr, part="indptr", start=start)
        out.write(self.indices, part="indices")
        out.write(self.data, part="data")


class SavedRows:
    """The rows of a matrix in a checkpoint."""

    def __init__(self, name: str, source: ArrayReader, rows: int) -> None:
        """Find the arrays of the matrix in the checkpoint.

        Raises:
            CheckpointError: Some of the ``rows`` rows are missing.
        """
        self._name, self._source = name, source
        pointers = [saved for saved in source.arrays if saved.where["part"] == "indptr"]
        self._pointers = sorted(pointers, key=lambda saved: int(saved.where["start"]))
        self._others = {(saved.rank, saved.where["part"]): saved for saved in source.arrays}
        counts = [saved.shape[0] - 1 for saved in self._pointers]
        if sum(counts) != rows:
            raise CheckpointError(f"matrix {name!r}: {rows - sum(counts)} rows are not there")
        self.layout = UnevenLayout.of(counts or [0])

    def balanced(self, size: int) -> Layout:
        """Return the layout on ``size`` processes in which all own about equally many nonzeros.

        Reads the row pointers that the old processes saved, one process after the other.

        Raises:
            CheckpointError: The row pointers are damaged.
        """
        totals = [self._nonzeros(saved) for saved in self._pointers]
        cuts = []
        for place, saved in enumerate(self._pointers):
            lengths = np.diff(self._read(saved, 0, saved.shape[0])).astype(np.float64)
            cuts.append(cuts_by_weight(lengths, totals, place, size))
        return layout_of(cuts, [saved.shape[0] - 1 for saved in self._pointers], size)

    def read(self, start: int, stop: int, dtype: np.dtype[Any]) -> CsrRows:
        """Read only the rows ``[start, stop)`` of the saved matrix.

        Raises:
            CheckpointError: Data are missing or damaged.
        """
        ranges = [
            (saved, max(start, begin) - begin, min(stop, end) - begin)
            for saved, (begin, end) in zip(self._pointers, self.layout.blocks(), strict=False)
            if max(start, begin) < min(stop, end)
        ]
        pointers = [self._read(saved, low, high + 1) for saved, low, high in ranges]
        nonzeros = sum(int(own[-1] - own[0]) for own in pointers)
        rows = CsrRows.empty(stop - start, nonzeros, dtype)
        row = place = 0
        for (saved, low, high), own in zip(ranges, pointers, strict=True):
            count = int(own[-1] - own[0])
            rows.indptr[row + 1 : row + 1 + high - low] = own[1:] - own[0] + place
            for part, into in (("indices", rows.indices), ("data", rows.data)):
                self._fill(saved, part, int(own[0]), into[place : place + count])
            row, place = row + high - low, place + count
        return rows

    def _nonzeros(self, pointers: SavedArray) -> int:
        saved = self._others.get((pointers.rank, "indices"))
        return saved.shape[0] if saved is not None else 0

    def _read(self, saved: SavedArray, first: int, stop: int) -> NDArray[np.int64]:
        into = np.empty(stop - first, np.int64)
        self._source.read(saved, first, into)
        return into

    def _fill(self, pointers: SavedArray, part: str, first: int, into: Array) -> None:
        saved = self._others.get((pointers.rank, part))
        if into.size:
            if saved is None:
                raise CheckpointError(f"matrix {self._name!r}: {part} are not there")
            self._source.read(saved, first, into)
