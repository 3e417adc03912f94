"""What every kind of data must do in a resize, a rollback and a restart. No MPI.

A resize leaves each rank with its part and sends the fewest bytes; a rollback leaves everything as
it was; a checkpoint that was saved at one size can be restored at every other one.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pliant.appkit.data.array_handles import Handle
from pliant.appkit.kinds.csr_matrix import CsrMatrix
from pliant.appkit.kinds.replicated_and_root_arrays import UndividedHandle
from pliant.appkit.redistribution import packed_exchange, range_exchange
from pliant.appkit.redistribution.transfer_plan import RankMap
from pliant.appkit.storage import array_files
from rankkit import Parts, load, rank_map, resize, save
from rankkit.kinds import KINDS, TINY_KINDS, ItemKind, Kind

#: Every pair of sizes up to this is tried.
SMALL = 8
#: Pairs of sizes up to ``LARGE`` that are tried in addition, drawn at random.
SAMPLES, LARGE = 20, 40

each_kind = pytest.mark.parametrize("kind", [*KINDS, *TINY_KINDS], ids=lambda kind: kind.title)


def all_pairs() -> list[int]:
    """Return sizes in an order in which each one follows each other one, and itself."""
    walk = []
    for size in range(1, SMALL + 1):
        walk.append(size)
        for larger in range(size + 1, SMALL + 1):
            walk += [size, larger]
    return [*walk, walk[0]]


def any_leave(before: int, after: int, random: Random) -> RankMap:
    """Return a resize in which any ranks leave."""
    if after >= before:
        return RankMap.expand(before, after)
    return RankMap.shrink(before, sorted(random.sample(range(before), before - after)))


def checked_resize(kind: Kind, parts: Parts, way: RankMap) -> Parts:
    before = kind.owners(parts)
    parts, sent = resize(kind.entries, parts, way)
    after = kind.owners(parts)
    assert sent == kind.bytes_sent(before, after, way), way
    if isinstance(kind, ItemKind):
        kind.ruled(after, parts, kind.rule)
    return parts


@each_kind
def test_all_pairs_of_small_sizes_one_after_the_other(kind: Kind) -> None:
    walk, random = all_pairs(), Random(kind.title)
    assert set(itertools.pairwise(walk)) == set(itertools.product(range(1, SMALL + 1), repeat=2))
    parts = kind.start(walk[0])
    for before, after in itertools.pairwise(walk):
        parts = checked_resize(kind, parts, any_leave(before, after, random))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_sampled_pairs_of_sizes_with_short_messages(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(kind.title)
    for _ in range(SAMPLES):
        monkeypatch.setattr(packed_exchange, "STAGE_BYTES", random.randint(1, 400))
        monkeypatch.setattr(range_exchange, "CHUNK_BYTES", random.randint(20, 400))
        before, after = random.randint(1, LARGE), random.randint(1, LARGE)
        other = kind.varied(random)
        checked_resize(other, other.start(before), any_leave(before, after, random))


def arrays(parts: Parts) -> list[Any]:
    """Return the arrays of all handles, in the order of ranks."""
    handles = [entry for entries in parts for entry in entries if isinstance(entry, Handle)]
    return [array for handle in handles for array in handle.buffers()]


def values(entry: Any) -> Any:
    """Return the array of a distributed kind that a program writes to, None for other kinds."""
    if isinstance(entry, CsrMatrix):
        return entry.data
    if isinstance(entry, Handle) and not isinstance(entry, UndividedHandle):
        return entry.buffers()[0]
    return None


@each_kind
@pytest.mark.parametrize("after", [2, 5])
def test_what_a_resize_replaced_cannot_be_written_to(kind: Kind, after: int) -> None:
    parts = kind.start(3)
    old = [values(entry) for entry in itertools.chain(*parts)]
    new, _ = resize(kind.entries, parts, rank_map(3, after))
    kept = [id(values(entry)) for entry in itertools.chain(*new)]
    for array in old:
        if array is not None and id(array) not in kept:
            assert not array.flags.writeable


@each_kind
@pytest.mark.parametrize("after", [2, 5])
def test_a_rollback_leaves_everything_as_it_was(kind: Kind, after: int) -> None:
    parts = kind.start(3)
    owners, before = kind.owners(parts), arrays(parts)
    parts, _ = resize(kind.entries, parts, rank_map(3, after, first=True), commit=False)
    assert repr(kind.owners(parts)) == repr(owners)
    assert [id(array) for array in arrays(parts)] == [id(array) for array in before]
    assert all(array.flags.writeable for array in before)
    for size in (4, 1):  # nothing is left of the one that was rolled back
        parts = checked_resize(kind, parts, rank_map(len(parts), size))


@each_kind
@pytest.mark.parametrize("chunk", [array_files.CHUNK_BYTES, 100, 24])
def test_saved_at_one_size_and_restored_at_another(
    kind: Kind, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_files, "CHUNK_BYTES", chunk)
    for before in (1, 3, 4, 6):
        folder = tmp_path / str(before)
        folder.mkdir()
        written = save(kind.start(before), folder)
        saved = sum(saved.bytes for pieces in written for saved in pieces)
        assert saved == sum(path.stat().st_size for path in folder.iterdir())
        for after in (1, 2, 3, 5, 9):
            parts = load(kind.entries, folder, written, before, after)
            kind.restored(parts)
        checked_resize(kind, parts, rank_map(9, 4))


@each_kind
def test_descriptions_are_the_same_on_all_ranks_and_before_and_after(kind: Kind) -> None:
    parts = kind.start(3)
    described = [entry.describe() for entry in parts[0]]
    assert json.loads(json.dumps(described)) == described
    parts, _ = resize(kind.entries, parts, rank_map(3, 5))
    assert all([entry.describe() for entry in entries] == described for entries in parts)


@each_kind
def test_an_estimate_needs_nobody_else(kind: Kind) -> None:
    parts = kind.start(3)
    for entry in itertools.chain(*parts):
        assert entry.estimate(RankMap.expand(3, 5)) >= 0
