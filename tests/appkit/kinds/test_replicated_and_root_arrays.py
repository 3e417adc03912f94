"""Arrays of rank 0: wrong arguments and checkpoints. No MPI."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.appkit.appkit_errors import CheckpointError
from pliant.appkit.kinds.replicated_and_root_arrays import RootArray
from pliant.appkit.storage.array_files import ArrayReader
from rankkit import member


def test_a_checkpoint_without_the_array_is_refused(tmp_path: Path) -> None:
    array = RootArray(member(0, 1), "log", (2, 3), "i4")
    with pytest.raises(CheckpointError, match="'log' is not in the checkpoint"):
        array.restore(ArrayReader(tmp_path, [], 3), 0, 1)


def test_wrong_terms_are_refused() -> None:
    with pytest.raises(ValueError, match="negative length"):
        RootArray(member(0, 1), "log", (-1,), "i4")
    with pytest.raises(ValueError, match="Python objects do not move"):
        RootArray(member(0, 1), "log", (1,), object)
