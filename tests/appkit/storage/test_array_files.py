"""Arrays in files: what is read must be what was written. No MPI."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pliant.appkit.appkit_errors import CheckpointError
from pliant.appkit.storage.array_files import ArrayReader, ArrayWriter


def test_another_type_of_the_same_length_is_refused(tmp_path: Path) -> None:
    out = ArrayWriter(tmp_path, "a", 0)
    out.write(np.arange(4.0))
    out.close()
    reader = ArrayReader(tmp_path, out.arrays, 1)
    with pytest.raises(CheckpointError, match="4 items of type <f8 does not hold 4 of <i8"):
        reader.read(out.arrays[0], 0, np.empty(4, np.int64))
