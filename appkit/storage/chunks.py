"""The files of a checkpoint: what one process wrote of one registered thing, and reading it back.

A file holds *pieces*: arrays in C order, one after the other, each described in the manifest by
where it belongs. What "where" means is the kind's own business (``Entry.save``, ``Entry.restore``);
here is only how bytes get to the disk and back: in chunks, so that no process ever needs more than
its share of the data and a chunk, and with a checksum for each chunk, so that any part of a piece
can be read alone and is still known to be right. No MPI.
"""

import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pliant.appkit.errors import CheckpointError
from pliant.appkit.redistribution.exchange import Array
from pliant.appkit.storage.private_folders import PrivateFolder
from pliant.faults import writing

#: Bytes that are written, read and checked together.
CHUNK_BYTES = 4 << 20

#: What a kind notes of a piece, in a form that JSON can carry.
Where = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SavedArray:
    """One array in a file."""

    file: str
    #: The process that wrote it, as its rank then.
    rank: int
    #: First byte of it in the file.
    offset: int
    #: Of an item, as numpy writes it.
    dtype: str
    shape: tuple[int, ...]
    #: Of each chunk, in order.
    checksums: tuple[int, ...]
    where: Where

    @property
    def items(self) -> int:
        """Number of items."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Its length in the file."""
        return self.items * np.dtype(self.dtype).itemsize

    def to_json(self) -> list[Any]:
        """For the manifest."""
        shape, sums = list(self.shape), list(self.checksums)
        return [self.file, self.rank, self.offset, self.dtype, shape, sums, self.where]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> "SavedArray":
        """The inverse of ``to_json``."""
        file, rank, offset, dtype, shape, sums, where = data
        return cls(file, rank, offset, dtype, tuple(shape), tuple(sums), where)


class ArrayWriter:
    """Writes what one process has of one registered thing; makes its file with the first piece."""

    def __init__(self, folder: Path | PrivateFolder, file: str, rank: int) -> None:
        """Write into ``folder``; ``rank`` is that of this process."""
        self.arrays: list[SavedArray] = []
        self._folder, self._file, self._rank = _opened(folder), file, rank
        self._handle: Any = None

    def write(self, array: Array, **where: Any) -> None:
        """Append a piece; an empty array leaves none.

        Args:
            array: of any strides; without Python objects.
            where: what ``Entry.restore`` has to know about it.

        Raises:
            OSError: it cannot be written.
        """
        if not array.size:
            return
        if self._handle is None:
            self._handle = self._folder.write(self._file)
        writing()
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
        """Have it on the disk; if not ``durable``, where other processes can read it.

        Raises:
            OSError: it is not.
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
    """Reads what all processes wrote of one registered thing."""

    def __init__(
        self, folder: Path | PrivateFolder, pieces: Sequence[SavedArray], size: int
    ) -> None:
        """Read from ``folder``; ``size`` is the number of processes that wrote."""
        self.arrays = tuple(pieces)
        self.size = size
        self._folder = _opened(folder)

    def read(self, saved: SavedArray, first: int, into: Array) -> None:
        """Fill an array with the items of a piece from ``first`` on, in C order.

        Raises:
            CheckpointError: the piece has not so many items, or they are damaged.
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
    """Items in C order: a view where the array lies that way in memory, else a copy of these."""
    if array.flags.c_contiguous:
        return array.reshape(-1)[first:stop]
    part: Array = array.flat[first:stop]
    return part


def _put(array: Array, first: int, items: Array) -> None:
    if array.flags.c_contiguous:
        array.reshape(-1)[first : first + items.size] = items
    else:
        array.flat[first : first + items.size] = items
