"""What arrays have in common that a process holds in one piece, or not at all."""

import numpy as np

from pliant.appkit.data.handle import Held
from pliant.appkit.errors import CheckpointError
from pliant.appkit.redistribution.ranges import Side
from pliant.appkit.storage.chunks import PieceReader


class WholeArray(Held):
    """An array that is whole wherever it is; ``local`` and where it is are the kind's business."""

    instead = "job.state"

    def _sides(self) -> tuple[Side | None, Side | None]:
        """Both ends of a move, cell by cell."""
        here, there = (
            None if array is None else Side(array.reshape(-1), 0)
            for array in (self._array, self._next)
        )
        return here, there

    def _read(self, source: PieceReader) -> None:
        """Make it and read all of it."""
        array = np.empty(self.shape, self.dtype)
        if array.size:
            if len(source.pieces) != 1:
                raise CheckpointError(f"array {self.name!r} is not in the checkpoint")
            source.read(source.pieces[0], 0, array)
        self._array = array
