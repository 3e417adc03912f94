"""Find and remove the shared memory of MPI libraries, which killed ranks cannot remove.

The shim records the segments that its ranks have mapped. A rank may be killed before its segments
were recorded, so the one segment that MPICH makes for a world on a node is also found by its name.
No other file in /dev/shm is touched.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from pliant.nodectl.host import procfs

SHARED_MEMORY = "/dev/shm/"

#: Beginnings of the names of segments of MPI libraries and their transports.
PREFIXES = (
    "mpich_",
    "MPICH_",
    "ucx_shm",
    "ofi_",
    "fi_shm",
    "psm2_shm",
    "psm3_shm",
    "sm_segment",
    "vader_segment",
)

_BLOCK = re.compile(r"\((\d+),(\d+),(\d+)\)")

#: The 32-bit FNV-1a hash.
_OFFSET, _PRIME, _MASK = 2166136261, 16777619, 0xFFFFFFFF


class Segment(NamedTuple):
    """A file in /dev/shm that a process mapped.

    The inode shows whether the path still names the same file, or a later one of the same name.
    """

    path: str
    inode: int


def mapped_segments(pid: int) -> set[Segment]:
    """Return the shared memory files in /dev/shm that a process has mapped."""
    found = set()
    for line in procfs.maps(pid):
        if b" /dev/shm/" not in line or line.endswith(b" (deleted)"):
            continue
        fields = line.split(maxsplit=5)
        path = os.fsdecode(fields[5])
        if path.removeprefix(SHARED_MEMORY).startswith(PREFIXES):
            found.add(Segment(path, int(fields[4])))
    return found


def world_segments(world: str, mapping: str, rank: int) -> set[Segment]:
    """Return the shared memory file of an ``MPI_COMM_WORLD`` on one node, as MPICH names it.

    Empty if there is no such file.

    Args:
        world: the name under which PMI knows the ranks of this communicator.
        mapping: their PMI process mapping.
        rank: any of these ranks on the node.
    """
    value = _OFFSET
    for byte in world.encode():
        value = ((value ^ byte) * _PRIME) & _MASK
    path = f"{SHARED_MEMORY}mpich_shm_{value:x}_{node_of(mapping, rank)}"
    try:
        status = os.lstat(path)
    except OSError:
        return set()
    return {Segment(path, status.st_ino)} if status.st_uid == os.getuid() else set()


def node_of(mapping: str, rank: int) -> int:
    """Return the index of the node on which a rank runs, from a PMI process mapping.

    Each block of the mapping is (first node, number of nodes, ranks on each).
    """
    first_rank = 0
    for match in _BLOCK.finditer(mapping):
        node, nodes, each = map(int, match.groups())
        if rank < first_rank + nodes * each:
            return node + (rank - first_rank) // each
        first_rank += nodes * each
    return 0


def unlink(found: set[Segment]) -> None:
    """Remove the shared memory files that still exist."""
    for segment in found:
        try:
            if os.lstat(segment.path).st_ino == segment.inode:
                os.unlink(segment.path)
        except OSError:
            pass  # its library has removed it itself
