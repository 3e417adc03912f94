"""The files of a checkpoint: arrays that one process wrote of one registered object. No MPI.

A file contains arrays in C order, one after the other. The manifest describes each array, including
the place where it belongs (``where``), which only its kind interprets (``RegisteredData.save`` and
``RegisteredData.restore``). Arrays are written and read in chunks, so that a process needs memory
for its part of the data and one chunk. Each chunk has a checksum, so that any range of an array can
be read and verified alone.
"""

import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pliant.appkit.appkit_errors import CheckpointError
from pliant.appkit.redistribution.range_exchange import Array
from pliant.appkit.storage.private_folders import PrivateFolder
from pliant.faults import before_write

#: Bytes of a chunk: they are written, read and verified together.
CHUNK_BYTES = 4 << 20

#: Where an array belongs, as JSON values that its kind interprets.
Where = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SavedArray:
    """The record of one saved array: its file and offset, type, shape and checksums.

    ``where`` has further values that the restoring object needs, such as the global number of the
    array's first row.
    """

    file: str
    #: The rank of the process that wrote it.
    rank: int
    #: The offset of its first byte in the file.
    offset: int
    #: The type of an item, as numpy's short text.
    dtype: str
    shape: tuple[int, ...]
    #: The CRC-32 of each chunk, in order.
    checksums: tuple[int, ...]
    where: Where

    @property
    def items(self) -> int:
        """Return the number of items in the array; 1 for an array without axes."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Return the size of the array in the file, in bytes."""
        return self.items * np.dtype(self.dtype).itemsize

    def to_json(self) -> list[Any]:
        """Return this record as JSON values, for the manifest of the checkpoint."""
        shape, sums = list(self.shape), list(self.checksums)
        return [self.file, self.rank, self.offset, self.dtype, shape, sums, self.where]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> "SavedArray":
        """Return the record that `to_json` converted to JSON values."""
        file, rank, offset, dtype, shape, sums, where = data
        return cls(file, rank, offset, dtype, tuple(shape), tuple(sums), where)


class ArrayWriter:
    """Writes the arrays of one registered object on one process, all into one file.

    The file is created when the first array is written.
    """

    def __init__(self, folder: Path | PrivateFolder, file: str, rank: int) -> None:
        """Write into the file ``file`` in ``folder``; ``rank`` is that of this process."""
        self.arrays: list[SavedArray] = []
        self._folder, self._file, self._rank = _opened(folder), file, rank
        self._handle: Any = None

    def write(self, array: Array, **where: Any) -> None:
        """Append an array to the file, and its record to ``arrays``; leave out an empty array.

        Args:
            array: With any strides, without Python objects.
            where: Further values for the record that ``RegisteredData.restore`` needs, such as the
                global number of the array's first row.

        Raises:
            OSError: The file cannot be written.
        """
        if not array.size:
            return
        if self._handle is None:
            self._handle = self._folder.write(self._file)
        before_write()
        offset, sums = self._handle.tell(), []
        step = _per_chunk(array.dtype)
        for first in range(0, array.size, step):
            chunk = _flat(array, first, min(first + step, array.size)).view(np.uint8)
            sums.append(zlib.crc32(chunk.data))
            self._handle.write(chunk)
        kind = array.dtype.str
        self.arrays.append(
            SavedArray(self._file, self._rank, offset, kind, array.shape, tuple(sums), where)
        )

    def close(self, *, durable: bool = True) -> None:
        """Close the file; if ``durable``, first wait until its data are on the disk (fsync).

        Raises:
            OSError: The data could not be written.
        """
        if self._handle is not None:
            try:
                self._handle.flush()
                if durable:
                    os.fsync(self._handle.fileno())
            finally:
                self._handle.close()
                self._handle = None


class ArrayReader:
    """Reads the arrays that all processes wrote of one registered object."""

    def __init__(
        self, folder: Path | PrivateFolder, arrays: Sequence[SavedArray], size: int
    ) -> None:
        """Prepare to read arrays.

        Args:
            folder: the folder with their files.
            arrays: the records of the arrays.
            size: number of processes that have written them.
        """
        self.arrays = tuple(arrays)
        self.size = size
        self._folder = _opened(folder)

    def read(self, saved: SavedArray, first: int, into: Array) -> None:
        """Fill ``into`` with the items of a saved array from ``first`` on, in C order.

        Raises:
            CheckpointError: The saved array has too few items, another type, or is damaged.
        """
        if not into.size:
            return
        if saved.dtype != into.dtype.str or not 0 <= first <= saved.items - into.size:
            raise CheckpointError(
                f"{saved.file}: a piece of {saved.items} items of type {saved.dtype} does not "
                f"hold {into.size} of {into.dtype.str} from {first} on"
            )
        try:
            with self._folder.read(saved.file) as file:
                self._read(file, saved, first, into)
        except OSError as error:
            raise CheckpointError(f"{saved.file} cannot be read: {error}") from error

    def _read(self, file: Any, saved: SavedArray, first: int, into: Array) -> None:
        step, stop = _per_chunk(into.dtype), first + into.size
        buffer = np.empty(min(step, saved.items), into.dtype)
        for place in range(first // step, -(-stop // step)):
            begin, end = place * step, min((place + 1) * step, saved.items)
            chunk = buffer[: end - begin]
            raw = chunk.view(np.uint8)
            file.seek(saved.offset + begin * into.dtype.itemsize)
            got = file.readinto(raw)
            if got != raw.size:
                raise CheckpointError(f"{saved.file} is cut off at byte {file.tell()}")
            if zlib.crc32(raw.data) != saved.checksums[place]:
                raise CheckpointError(f"{saved.file} is damaged near byte {file.tell()}")
            low, high = max(begin, first), min(end, stop)
            _put(into, low - first, chunk[low - begin : high - begin])


def _opened(folder: Path | PrivateFolder) -> PrivateFolder:
    return folder if isinstance(folder, PrivateFolder) else PrivateFolder.open(folder)


def _per_chunk(dtype: np.dtype[Any]) -> int:
    return max(1, CHUNK_BYTES // max(1, dtype.itemsize))


def _flat(array: Array, first: int, stop: int) -> Array:
    """Return the items ``first`` to ``stop - 1`` of an array, counted in C order.

    The result is a view if the array is contiguous, otherwise a copy.
    """
    if array.flags.c_contiguous:
        return array.reshape(-1)[first:stop]
    part: Array = array.flat[first:stop]
    return part


def _put(array: Array, first: int, items: Array) -> None:
    if array.flags.c_contiguous:
        array.reshape(-1)[first : first + items.size] = items
    else:
        array.flat[first : first + items.size] = items
