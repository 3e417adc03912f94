"""Detect worlds in a copy of a node's state folder, whose processes belong to the original.

The records of a copy name shims and ranks that may still run for the original folder. A shim keeps
the folder of its node open, and the kernel knows the current name of that folder. So worlds in a
moved folder are taken over, and those in a copied folder are not. If no shim runs, the paths in the
order and in the environment of the ranks name the original folder; they count if it still exists.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pliant.nodectl.host import procfs
from pliant.nodectl.world_folder import UNREADABLE, WorldFolder, world_folders

logger = logging.getLogger("pliant.nodectl")


def own_world_folders(folder: Path) -> Iterator[WorldFolder]:
    """Yield the folders of a node's worlds (sets of ranks), without those that are only copies.

    If the node's state folder was copied, the processes of its worlds belong to the original
    folder. Then the copies are removed here, and the processes are not ended.
    """
    for spool in world_folders(folder):
        other = None if _has_ended(spool) or _is_by_helper(spool) else other_owner(spool)
        if other is None:
            yield spool
            continue
        logger.warning(
            "%s is a copy: what runs of it belongs to %s and is left alone; the world is forgotten "
            "here",
            spool.directory,
            other,
        )
        spool.remove()


def other_owner(spool: WorldFolder) -> Path | None:
    """Return the state folder to which a set of ranks belongs, unless it is this one.

    This one is the folder that contains ``spool``, the folder of the ranks. It may be a copy of
    the other one. None if the ranks belong to this one, or if no other one can be found.
    """
    node, shim = spool.directory.parent.parent, spool.shim()
    subreaper = shim.pid if shim is not None and shim.alive() else None
    held = procfs.open_folders(subreaper) if subreaper is not None else []
    if any(_same(handle, node) for handle in held):
        return None
    for handle in held:
        path = _link_target(handle)
        if _same(handle, path):  # it has not been removed
            return path
    places = [(home, spool.directory) for home in _recorded_folders(spool)]
    if subreaper is not None and (state := _start_variable(subreaper, "PLIANT_STATE_DIR")):
        places.append((Path(state) / node.name, node))
    others = (there for there, here in places if there.exists() and not _same(there, here))
    return next(others, None)


def _recorded_folders(spool: WorldFolder) -> Iterator[Path]:
    """Yield the paths that the folder of a set of ranks had when the ranks were started.

    The paths are read from the order to start the ranks, and from the environment of the ranks.
    """
    with suppress(*UNREADABLE):
        yield Path(spool.request().environment["PLIANT_TOKEN_FILE"]).parent
    with suppress(*UNREADABLE):
        for rank in spool.ranks().values():
            if rank.alive() and (token := _start_variable(rank.pid, "PLIANT_TOKEN_FILE")):
                yield Path(token).parent


def _has_ended(spool: WorldFolder) -> bool:
    """Return whether all ranks that a folder records have ended, so that no process is left."""
    with suppress(*UNREADABLE):
        return len(spool.exits()) >= len(spool.request().ranks)
    return False


def _is_by_helper(spool: WorldFolder) -> bool:
    """Return whether the root helper started the world (set of ranks).

    The root helper serves only the controller of its own node, so the processes of such a world
    cannot belong to another state folder.
    """
    with suppress(*UNREADABLE):
        return spool.request().by_helper
    return False


def _start_variable(pid: int, name: str) -> str:
    """Return a variable of the environment in which a process was started, or ""."""
    start = f"{name}=".encode()
    found = (entry for entry in procfs.environment(pid) if entry.startswith(start))
    return os.fsdecode(next(found, b"").removeprefix(start))


def _link_target(link: Path) -> Path:
    try:
        return Path(os.readlink(link))
    except OSError:
        return Path()  # it has just been closed


def _same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
