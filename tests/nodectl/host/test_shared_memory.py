"""Which files in /dev/shm are those of an MPI library."""

from __future__ import annotations

import mmap
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.nodectl.host import shared_memory
from pliant.nodectl.host.shared_memory import Segment


@pytest.fixture
def segment() -> Iterator[Path]:
    path = Path(f"/dev/shm/mpich_shm_{uuid.uuid4().hex}")
    path.write_bytes(b"x" * mmap.PAGESIZE)
    yield path
    path.unlink(missing_ok=True)


def test_what_is_mapped_is_found_and_removed(segment: Path) -> None:
    with open(segment, "r+b") as file, mmap.mmap(file.fileno(), 0):
        found = {
            each for each in shared_memory.mapped_segments(os.getpid()) if each.path == str(segment)
        }
        assert found == {Segment(str(segment), segment.stat().st_ino)}
        shared_memory.unlink(found)
        assert not segment.exists()
        assert not {e for e in shared_memory.mapped_segments(os.getpid()) if e.path == str(segment)}
    shared_memory.unlink(found)


def test_a_later_namesake_stays(segment: Path) -> None:
    shared_memory.unlink({Segment(str(segment), segment.stat().st_ino + 1)})
    assert segment.exists()


def test_what_users_share_is_none_of_our_business() -> None:
    path = Path(f"/dev/shm/data-{uuid.uuid4().hex}")
    path.write_bytes(b"x" * mmap.PAGESIZE)
    try:
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0):
            found = shared_memory.mapped_segments(os.getpid())
        assert str(path) not in {each.path for each in found}
    finally:
        path.unlink()
    assert shared_memory.mapped_segments(2**22 + 1) == set()


def test_the_name_that_mpich_gives() -> None:
    # Seen in a trace: the world of this name had the segment with this hash.
    path = Path("/dev/shm/mpich_shm_1fbb8e7d_7")
    path.touch()
    world = "w4d2ed1ff9b53450d955ff8de1f3c996d", "(vector,(7,1,1))", 0
    try:
        found = shared_memory.world_segments(*world)
        assert {each.path for each in found} == {str(path)}
    finally:
        path.unlink()
    assert shared_memory.world_segments(*world) == set()


@pytest.mark.parametrize(
    ("mapping", "nodes"),
    [
        ("(vector,(0,1,3))", [0, 0, 0]),
        ("(vector,(0,2,2))", [0, 0, 1, 1]),
        ("(vector,(0,1,3),(1,1,1))", [0, 0, 0, 1]),
        ("(vector,(2,1,1),(0,2,1))", [2, 0, 1]),
        ("", [0, 0]),
    ],
)
def test_the_node_of_a_rank(mapping: str, nodes: list[int]) -> None:
    assert [shared_memory.node_of(mapping, rank) for rank in range(len(nodes))] == nodes
