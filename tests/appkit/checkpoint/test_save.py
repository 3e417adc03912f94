"""Checkpoints of ranks that are threads: an error of one rank never leaves the others waiting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pliant.appkit.appkit_errors import CheckpointError
from pliant.appkit.checkpoint.restore import find_restorer
from pliant.appkit.checkpoint.save import Checkpoints
from pliant.appkit.checkpoint.store import CheckpointStore
from pliant.appkit.coordinator.messages import CheckpointOrder, CheckpointReport
from pliant.appkit.kinds.block_array import BlockArray
from pliant.appkit.loops import Position
from pliant.appkit.registered_objects import JobData
from pliant.core.model.checkpoint import SaveProgress
from rankkit import member, run_ranks

SIZE = 3


def key() -> bytes:
    return b"k" * 64


def no_key() -> bytes:
    raise RuntimeError("Could not determine home directory.")


def save(folder: Path, read_key: Any = key, broken_rank: int | None = None) -> list[Any]:
    """Save an array of all ranks; return the report that each rank gets."""

    def one(comm: Any) -> CheckpointReport:
        membership = member(comm.rank, comm.size)
        membership.raw = comm
        data = JobData(membership)
        rows = BlockArray(membership, "rows", (6, 2), axis=0, halo=0, dtype="f8")
        rows.start_with(lambda index: np.arange(12.0).reshape(6, 2)[index])
        if comm.rank == broken_rank:
            rows.save = None  # type: ignore[assignment,method-assign]
        data.registry.add(rows)
        checkpoints = Checkpoints(data, folder, None)
        checkpoints.store = CheckpointStore(folder, key=read_key)
        return checkpoints.save(CheckpointOrder(4), Position(1, 20), [])

    return run_ranks(SIZE, one)[0]


def assert_failed(reports: list[CheckpointReport], reason: str) -> None:
    assert {(each.number, each.progress) for each in reports} == {(4, SaveProgress.FAILED)}
    assert reports[0].reason == reason


def test_all_ranks_learn_that_the_checkpoint_is_saved(tmp_path: Path) -> None:
    reports = save(tmp_path / "save")
    assert {(each.number, each.progress, each.reason) for each in reports} == {
        (4, SaveProgress.SAVED, "")
    }
    assert reports[0].bytes == 12 * 8
    manifest = CheckpointStore(tmp_path / "save", key=key).read()
    assert manifest is not None
    assert (manifest.size, manifest.position) == (SIZE, Position(1, 20))


def test_an_error_of_any_type_before_the_first_write_fails_on_all_ranks(tmp_path: Path) -> None:
    """Rank 0 reads the key in order to check the last checkpoint, before it broadcasts."""
    folder = tmp_path / "save"
    save(folder)
    before = sorted(folder.rglob("*"))
    assert_failed(save(folder, no_key), "RuntimeError: Could not determine home directory.")
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("rank", range(SIZE))
def test_an_error_of_any_rank_that_writes_fails_on_all_ranks(tmp_path: Path, rank: int) -> None:
    reports = save(tmp_path / "save", broken_rank=rank)
    assert_failed(reports, f"rank {rank}: TypeError: 'NoneType' object is not callable")
    assert list((tmp_path / "save").iterdir()) == []


def test_an_error_of_any_type_while_publishing_fails_on_all_ranks(tmp_path: Path) -> None:
    reports = save(tmp_path / "save", no_key)
    assert_failed(reports, "RuntimeError: Could not determine home directory.")
    assert list((tmp_path / "save").iterdir()) == []


def test_an_error_without_a_text_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(_: CheckpointStore) -> int:
        raise OSError

    monkeypatch.setattr(CheckpointStore, "begin", begin)
    assert_failed(save(tmp_path), "OSError: ")


def test_files_that_cannot_be_removed_after_a_failure_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drop(*_: Any) -> None:
        raise RecursionError

    monkeypatch.setattr(CheckpointStore, "drop", drop)
    assert_failed(
        save(tmp_path, broken_rank=1), "rank 1: TypeError: 'NoneType' object is not callable"
    )


def test_an_error_of_any_type_while_rank_0_looks_for_a_checkpoint_ends_all_ranks(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "save"
    save(folder)

    def one(comm: Any) -> str:
        membership = member(comm.rank, comm.size)
        membership.raw = comm
        with pytest.raises(CheckpointError) as caught:
            find_restorer(CheckpointStore(folder, key=no_key), JobData(membership))
        return str(caught.value)

    texts = set(run_ranks(SIZE, one)[0])
    assert len(texts) == 1
    assert "RuntimeError: Could not determine home directory." in texts.pop()
