"""Checkpoints as files: every pair of sizes, what is damaged, what is interrupted. No MPI."""

from __future__ import annotations

import functools
import itertools
import os
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.appkit.appkit_errors import CheckpointError
from pliant.appkit.checkpoint.store import (
    MANIFEST,
    CheckpointStore,
    Manifest,
    registration_difference,
)
from pliant.appkit.data.registered_data import RegisteredData
from pliant.appkit.kinds.block_array import BlockArray
from pliant.appkit.kinds.replicated_and_root_arrays import ReplicatedArray
from pliant.appkit.kinds.replicated_values import unpack
from pliant.appkit.loops import Position
from pliant.appkit.mpi.membership import Membership, MembershipPhase
from pliant.appkit.serialization import encode
from pliant.appkit.storage import array_files
from pliant.appkit.storage.array_files import ArrayReader, ArrayWriter, SavedArray
from pliant.appkit.storage.checkpoint_signature import own_key


def member(rank: int, size: int) -> Membership:
    """Stand in for a process of a job, without a communicator."""
    membership = Membership(None)
    membership.rank, membership.size, membership.phase = rank, size, MembershipPhase.MEMBER
    return membership


def kinds(membership: Membership) -> list[Any]:
    return [
        BlockArray(membership, "rows", (11, 3), axis=0, halo=1, dtype="f8"),
        BlockArray(membership, "columns", (2, 7), axis=-1, halo=0, dtype="i2"),
        BlockArray(membership, "few", (4,), axis=0, halo=0, dtype="c16"),
        BlockArray(membership, "none", (0, 3), axis=0, halo=0, dtype="f8"),
        ReplicatedArray(membership, "table", (5, 2), "f4"),
    ]


def whole(entry: Any) -> Any:
    """One value for each cell of the global array."""
    return np.arange(1, np.prod(entry.shape) + 1).reshape(entry.shape).astype(entry.dtype)


def start(entry: Any) -> None:
    if isinstance(entry, BlockArray):
        entry.start_with(lambda index: whole(entry)[index])
    else:
        entry.start_with(lambda: whole(entry))


def owned(entry: Any) -> Any:
    """What this process should have."""
    if not isinstance(entry, BlockArray):
        return whole(entry)
    index = [slice(None)] * len(entry.shape)
    index[entry.axis] = slice(entry.start, entry.stop)
    return whole(entry)[tuple(index)]


def write(folder: Path, size: int) -> list[list[SavedArray]]:
    """Have all processes of a job save; what they wrote of each thing."""
    written: list[list[SavedArray]] = []
    for rank in range(size):
        for place, entry in enumerate(kinds(member(rank, size))):
            start(entry)
            out = ArrayWriter(folder, f"{rank}-{place}", rank)
            entry.save(out)
            out.close()
            if rank == 0:
                written.append([])
            written[place] += out.arrays
    return written


def check(folder: Path, written: list[list[SavedArray]], before: int, after: int) -> None:
    for rank in range(after):
        for entry, own in zip(kinds(member(rank, after)), written, strict=True):
            entry.restore(ArrayReader(folder, own, before), rank, after)
            assert np.array_equal(entry.local, owned(entry)), (entry, rank, before, after)
            if isinstance(entry, BlockArray):
                assert entry.local.size == entry.with_halo.size - _halo_cells(entry)


def _halo_cells(entry: BlockArray) -> int:
    row: int = entry.with_halo.size // max(1, entry.with_halo.shape[entry.axis])
    return 2 * entry.halo * row


@given(
    shape=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    axis=st.integers(0, 2),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    chunk=st.integers(1, 200),
)
def test_any_shape_and_axis(
    tmp_path_factory: pytest.TempPathFactory,
    shape: list[int],
    axis: int,
    sizes: tuple[int, int],
    chunk: int,
) -> None:
    folder = tmp_path_factory.mktemp("save")
    before, after = sizes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_files, "CHUNK_BYTES", chunk)
        make = {"axis": axis % len(shape), "halo": 0, "dtype": "f8"}
        written: list[SavedArray] = []
        for rank in range(before):
            array = BlockArray(member(rank, before), "a", tuple(shape), **make)  # type: ignore[arg-type]
            start(array)
            out = ArrayWriter(folder, str(rank), rank)
            array.save(out)
            out.close()
            written += out.arrays
        for rank in range(after):
            array = BlockArray(member(rank, after), "a", tuple(shape), **make)  # type: ignore[arg-type]
            array.restore(ArrayReader(folder, written, before), rank, after)
            assert np.array_equal(array.local, owned(array))


def test_only_what_is_owned_is_read(tmp_path: Path) -> None:
    written = write(tmp_path, 4)
    for path in tmp_path.glob("[123]-*"):
        path.unlink()
    rows = kinds(member(0, 4))[0]
    rows.restore(ArrayReader(tmp_path, written[0], 4), 0, 4)
    assert np.array_equal(rows.local, owned(rows))
    last = kinds(member(3, 4))[0]
    with pytest.raises(CheckpointError, match=r"1-0 cannot be read|3-0 cannot be read"):
        last.restore(ArrayReader(tmp_path, written[0], 4), 3, 4)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(("harm", "text"), [(_flip, "is damaged near"), (_cut, "is cut off")])
@pytest.mark.parametrize("place", [0, 4])
def test_damage_is_found(tmp_path: Path, harm: Any, text: str, place: int) -> None:
    written = write(tmp_path, 1)
    harm(tmp_path / f"0-{place}")
    entry: RegisteredData = kinds(member(0, 1))[place]
    with pytest.raises(CheckpointError, match=text):
        entry.restore(ArrayReader(tmp_path, written[place], 1), 0, 1)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    written = write(tmp_path, 3)
    entries = kinds(member(0, 1))
    with pytest.raises(CheckpointError, match="array 'rows': 12 cells are not there"):
        entries[0].restore(ArrayReader(tmp_path, written[0][:2], 3), 0, 1)
    with pytest.raises(CheckpointError, match="array 'table' is not in the checkpoint"):
        entries[4].restore(ArrayReader(tmp_path, [], 3), 0, 1)
    with pytest.raises(CheckpointError, match="does not hold"):
        entries[0].restore(ArrayReader(tmp_path, written[1], 3), 0, 1)


# ------------------------------------------------------------------ the store


def manifest(store: CheckpointStore, number: int) -> Manifest:
    own = tuple(map(tuple, write(store.data(number), 2)))
    described = [entry.describe() for entry in kinds(member(0, 2))]
    return Manifest(
        number, 7, 1, 3, 2, 12.5, Position(2, 40), described, b"\x80s", (b"a", b"b"), own
    )


def test_a_manifest_comes_back_as_it_was(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "deep" / "job")
    assert store.read() is None
    made = manifest(store, store.begin())
    store.publish(made)
    assert store.read() == made
    for place, mode in (("", 0o700), ("save-1", 0o700), (MANIFEST, 0o600)):
        assert (store.folder / place).stat().st_mode & 0o777 == mode


def test_a_checkpoint_with_files_of_ranks_that_are_not_visible_is_refused(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "job")
    store.publish(made := manifest(store, store.begin()))
    number = store.begin()
    elsewhere = SavedArray("rank3-0.bin", 3, 0, "<f8", (1,), (0,), {})
    with pytest.raises(OSError, match=r"rank 3"):
        store.publish(replace(manifest(store, number), pieces=((elsewhere,),)))
    assert store.read() == made


def test_the_former_one_counts_until_the_next_is_published(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.publish(manifest(store, store.begin()))
    for _ in range(2):  # interrupted, and tried again
        number = store.begin()
        assert number == 2
        (store.data(number) / "0-0").write_text("half")
        found = store.read()
        assert found is not None
        assert found.number == 1
        check(store.data(1), [list(own) for own in found.pieces], 2, 3)
    store.publish(manifest(store, store.begin()))
    assert sorted(path.name for path in tmp_path.iterdir()) == [MANIFEST, "save-2"]


def test_a_run_that_another_has_replaced_touches_nothing(tmp_path: Path) -> None:
    old, new, third = (CheckpointStore(tmp_path / "job", run) for run in (1, 2, 3))
    old.publish(manifest(old, old.begin()))
    half = old.begin()
    stale = manifest(old, half)
    new.claim()
    found = new.read()
    assert found is not None
    assert found.number == 1
    with pytest.raises(OSError, match="run 2 of the job has gone on from its last checkpoint"):
        old.publish(stale)
    number = new.begin()
    assert number != half
    for refused in (old.begin, lambda: old.publish(stale)):
        with pytest.raises(OSError, match="run 2"):
            refused()
    old.drop(number)
    new.publish(made := manifest(new, number))
    assert new.read() == made
    third.claim()
    with pytest.raises(OSError, match="run 3"):
        new.begin()
    assert third.begin() == number + 1


def test_a_run_claims_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    CheckpointStore(tmp_path / "job", 2).claim()
    with pytest.raises(OSError, match="run 2"):
        CheckpointStore(tmp_path / "job", 1).begin()
    (tmp_path / "file").touch()
    CheckpointStore(tmp_path / "file" / "job", 2).claim()  # nobody can save itself here


def test_a_checkpoint_of_no_use_says_what_helps(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.publish(manifest(store, store.begin()))
    file = tmp_path / MANIFEST
    whole_text = file.read_bytes()
    for text in (whole_text[:-1], b"", whole_text.replace(b'"job":7', b'"job":8')):
        file.write_bytes(text)
        with pytest.raises(CheckpointError, match=r"is damaged.*remove that folder"):
            store.read()
    number = store.begin()  # a new one takes its place
    assert number == 2
    store.publish(manifest(store, number))
    found = store.read()
    assert found is not None
    assert found.number == 2


def test_the_data_and_the_manifest_are_on_the_disk_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path)
    store.publish(manifest(store, store.begin()))
    synced: set[int] = set()
    at_rename: list[set[int]] = []

    def sync(descriptor: int, real: Any) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        real(descriptor)

    def rename(*args: Any, real: Any, **how: Any) -> None:
        at_rename.append(set(synced))
        synced.clear()
        real(*args, **how)

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, functools.partial(sync, real=getattr(os, name)))
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, functools.partial(rename, real=getattr(os, name)))
    made = manifest(store, store.begin())
    store.publish(made)
    needed = [tmp_path / MANIFEST, tmp_path / "save-2", *(tmp_path / "save-2").iterdir()]
    assert {path.stat().st_ino for path in needed} <= at_rename[-1], "before the rename"
    assert tmp_path.stat().st_ino in synced, "the new name itself"
    assert store.read() == made


def test_another_jobs_checkpoint_is_refused(tmp_path: Path) -> None:
    theirs = CheckpointStore(tmp_path / "one", key=lambda: b"1" * 32)
    theirs.publish(manifest(theirs, theirs.begin()))
    theirs.folder.rename(tmp_path / "two")
    with pytest.raises(CheckpointError, match="signature"):
        CheckpointStore(tmp_path / "two", 2, key=lambda: b"2" * 32).read()
    assert CheckpointStore(tmp_path / "two", 2, key=lambda: b"1" * 32).read() is not None


def test_the_format_before_signatures_is_refused_by_number(tmp_path: Path) -> None:
    body = b'{"format":1,"states":"gASVDQ=="}'
    for text, number in (
        (b"%08x\n" % zlib.crc32(body) + body, 1),
        (b"pliant-checkpoint 3 aa\n{}", 3),
    ):
        (tmp_path / MANIFEST).write_bytes(text)
        with pytest.raises(CheckpointError, match=rf"format {number}.*reads format 2"):
            CheckpointStore(tmp_path, 2).read()


class Boom:
    """Its pickle says so when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("executed",)


def test_nothing_is_unpickled_that_is_not_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    forger = CheckpointStore(tmp_path / "job", key=lambda: b"f" * 32)
    forged = replace(manifest(forger, forger.begin()), states=encode([["s"], Boom()]))
    forger.publish(forged)
    with pytest.raises(CheckpointError, match="signature"):
        CheckpointStore(tmp_path / "job", 2, key=lambda: b"k" * 32).read()
    assert not (tmp_path / "executed").exists()
    unpack(encode([[["s"]], Boom()]))
    assert (tmp_path / "executed").exists(), "else the test shows nothing"


def test_a_folder_that_others_can_write_or_a_link_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    folder.chmod(0o777)
    (tmp_path / "link").symlink_to(folder)
    for path, text in ((folder, "can be written by other accounts"), (tmp_path / "link", "a link")):
        store = CheckpointStore(path, 2)
        with pytest.raises(CheckpointError, match=text):
            store.read()
        with pytest.raises(OSError, match=text):
            store.begin()
    folder.chmod(0o755)
    store = CheckpointStore(folder)
    number = store.begin()
    (folder / "save-2").symlink_to(store.data(number))
    store.publish(manifest(store, number))
    assert sorted(path.name for path in folder.iterdir()) == [MANIFEST, "save-1"]
    (folder / MANIFEST).rename(folder / "elsewhere")
    (folder / MANIFEST).symlink_to("elsewhere")
    with pytest.raises(CheckpointError, match="is a link"):
        store.read()


def test_the_own_key_is_made_once_and_for_its_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIANT_STATE_DIR", str(tmp_path / "state"))
    key = own_key()
    assert own_key() == key
    file = tmp_path / "state" / "checkpoint.key"
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    with pytest.raises(OSError, match="can be read by other accounts"):
        own_key()


def test_another_programs_checkpoint_is_told_by_the_first_difference() -> None:
    mine = [entry.describe() for entry in kinds(member(0, 2))]
    assert registration_difference(mine, mine) == ""
    assert "registration 2: the checkpoint has" in registration_difference(
        mine, [mine[0], *mine[:4]]
    )
    assert (
        registration_difference(mine, mine[:4])
        == "the checkpoint has 5 registrations, the program 4"
    )


def test_sizes_are_all_that_may_differ() -> None:
    for before, after in itertools.product(range(1, 10), repeat=2):
        there = [entry.describe() for entry in kinds(member(0, before))]
        assert not registration_difference(
            there, [entry.describe() for entry in kinds(member(0, after))]
        )
