"""Which types of cells are taken, what tells them apart, and structures on their way. No MPI."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pliant.appkit.appkit_errors import RegistrationMismatch
from pliant.appkit.checkpoint import store
from pliant.appkit.data.array_handles import Handle
from pliant.appkit.data.dtype import cell_type, type_terms
from pliant.appkit.kinds.block_array import BlockArray
from pliant.appkit.kinds.csr_matrix import CsrMatrix
from pliant.appkit.kinds.cyclic_array import CyclicArray
from pliant.appkit.kinds.item_distribution import ByOwner, Even
from pliant.appkit.kinds.items import Items
from pliant.appkit.kinds.partitioned_array import PartitionedArray
from pliant.appkit.kinds.replicated_and_root_arrays import ReplicatedArray, RootArray
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.resize import success_votes
from rankkit import load, member, rank_map, resize, save

#: A structure with an array in a field, and one that is not where it would be without gaps.
CELL = np.dtype(
    {
        "names": ["at", "tag", "n"],
        "formats": [("f8", (3,)), "S5", "i4"],
        "offsets": [8, 40, 0],
        "itemsize": 48,
    }
)
N = 23

Make = Callable[[Membership, Any], Handle]

KINDS: dict[str, Make] = {
    "block": lambda m, t: BlockArray(m, "a", (N,), axis=0, halo=1, dtype=t),
    "block of columns": lambda m, t: BlockArray(m, "a", (2, N), axis=1, halo=1, dtype=t),
    "replicated": lambda m, t: ReplicatedArray(m, "a", (N,), t),
    "root_only": lambda m, t: RootArray(m, "a", (N,), t),
    "items": lambda m, t: Items(m, "a", t, (), Even("a")),
    "items by owner": lambda m, t: Items(m, "a", t, (), ByOwner("a", _owner)),
    "cyclic": lambda m, t: CyclicArray(
        m, "a", (N,), t, axes=(0,), blocks=(2,), grid=lambda size: (size,)
    ),
    "block_cyclic": lambda m, t: CyclicArray(
        m, "a", (N, 3), t, axes=(0, 1), blocks=(2, 1), grid=lambda size: (size, 1)
    ),
    "partition": lambda m, t: PartitionedArray(
        m, "a", (N,), t, lambda size: np.arange(N) * 7 % size
    ),
    "csr": lambda m, t: CsrMatrix(m, "a", (N, N), t, "rows"),
}


def _owner(items: Any, size: int) -> Any:
    return items["n"] % size


def cells(*shape: int) -> Any:
    values = np.zeros(shape, CELL)
    values["n"] = np.arange(1, values.size + 1).reshape(shape)
    values["at"] = values["n"][..., None] + np.array([0.25, 0.5, 0.75])
    values["tag"] = np.char.add("t", values["n"].astype("U"))
    return values


def begin(kind: str, array: Any) -> None:
    """Fill the part of a rank; the items of all are numbered through."""
    if kind.startswith("items"):
        array.start_with(lambda rank, size: cells(N)[rank::size])
    elif kind == "csr":
        array.start_with(
            lambda start, stop: (range(stop - start + 1), range(start, stop), cells(N)[start:stop])
        )
    elif kind in {"replicated", "root_only"}:
        array.start_with(lambda: cells(N))
    else:
        array.start_with(cells(*array.shape).__getitem__)


def found(kind: str, entries: list[list[Any]]) -> list[Any]:
    """All cells that are there, as one list in the order of their numbers."""
    if kind == "root_only":
        entries = entries[:1]
    parts = [entry.data if kind == "csr" else entry.local for (entry,) in entries]
    values = np.concatenate([part.reshape(-1) for part in parts])
    if kind == "replicated":
        assert all(np.array_equal(part, parts[0]) for part in parts)
        values = parts[0]
    return sorted(values.tolist(), key=lambda cell: int(cell[2]))


def expected(kind: str) -> list[Any]:
    shape = {"block of columns": (2, N), "block_cyclic": (N, 3)}.get(kind, (N,))
    return list(cells(*shape).reshape(-1).tolist())


def told(values: list[Any]) -> str:
    return repr([(cell[0].tolist(), *cell[1:]) for cell in values])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("before", "after"), [(2, 5), (4, 3)])
def test_structures_move_whole(kind: str, before: int, after: int, tmp_path: Path) -> None:
    def make(membership: Membership) -> list[Any]:
        return [KINDS[kind](membership, CELL)]

    parts = [make(member(rank, before)) for rank in range(before)]
    for (array,) in parts:
        begin(kind, array)
    written = save(parts, tmp_path)
    assert told(found(kind, load(make, tmp_path, written, before, after))) == told(expected(kind))
    parts, _ = resize(make, parts, rank_map(before, after, first=True))
    assert told(found(kind, parts)) == told(expected(kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        ("S", "'S16'"),
        ("U", "'U16'"),
        ("V", "how long"),
        (np.dtype([]), "how long"),
        ([("n", "i4"), ("tag", "S")], "how long"),
        ([("n", "i4"), ("in", [("m", "i4"), ("tag", "U")])], "how long"),
        (("f8", 3), r"shape end with \(3,\)"),
        (("S4", (2, 2)), r"dtype \|S4 let the shape end with \(2, 2\)"),
        ("nonsense", "'f8'"),
        ("f8,,", "'f8'"),
        (3.5, "'f8'"),
        ({"a": 1}, "'f8'"),
        (object, "Python objects"),
        ([("n", object)], "Python objects"),
    ],
)
def test_what_cannot_be_moved_as_it_is_is_refused(kind: str, dtype: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"'a': .*{words}"):
        KINDS[kind](member(0, 1), dtype)


OTHERS = [
    [("x", "f8"), ("y", "f8")],
    [("y", "f8"), ("x", "f8")],
    [("x", "f8"), ("z", "f8")],
    [("x", "f8"), ("y", "i8")],
    [("x", "f8"), ("y", ">f8")],
    [("x", "f8"), ("y", "f4", 2)],
    [("x", "f8"), ("y", [("y", "f8")])],
    {"names": ["x", "y"], "formats": ["f8", "f8"], "offsets": [8, 0]},
    "V16",
    "S16",
    "c16",
]


@pytest.mark.parametrize("kind", KINDS)
def test_types_of_one_length_are_told_apart(kind: str) -> None:
    descriptions = [KINDS[kind](member(0, 1), dtype).describe() for dtype in OTHERS]
    assert json.loads(json.dumps(descriptions)) == descriptions, "as a checkpoint has them"
    for one, here in enumerate(descriptions):
        for other, there in enumerate(descriptions):
            assert (here == there) == (one == other)
            assert (store.registration_difference([there], [here]) == "") == (one == other)
            if one != other:
                with pytest.raises(RegistrationMismatch, match="registration 1"):
                    success_votes.compare_registrations([here], [there])


def test_a_length_at_the_end_of_a_structure_counts() -> None:
    fields: Any = {"names": ["x"], "formats": ["f8"]}
    short, long = (np.dtype(fields | {"itemsize": size}) for size in (8, 16))
    assert type_terms(short) != type_terms(long)


@pytest.mark.parametrize("dtype", ["f8", "i4", ">u2", "S16", "U3", "M8[ns]", "?", "c16", "V5"])
def test_plain_types_are_described_as_ever(dtype: str) -> None:
    assert type_terms(cell_type("array 'a'", dtype, "")) == np.dtype(dtype).str


@pytest.mark.parametrize("dtype", ["f8", "U3", "M8[ns]", OTHERS[0], OTHERS[7], CELL])
def test_items_of_an_old_checkpoint_are_the_same(dtype: Any) -> None:
    now = KINDS["items"](member(0, 1), dtype).describe()
    old: list[object] = ["items", "a", [], str(np.dtype(dtype)), "even"]
    assert store.registration_difference([old], [now]) == ""
    assert "registration 1" in store.registration_difference([old], [[*now[:3], "<f4", "even"]])
