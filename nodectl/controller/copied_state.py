"""Worlds in a copy of a node's state folder: their processes belong to the folder it was made from.

The records of a copy name the shims and ranks of a controller that may live on with them. Whose a
shim is it says itself: it keeps the folder of its node open, under whatever name that goes by now.
So a folder that was moved is taken over, and one that was copied is not. Where no shim can be
asked, what the world and its processes were given tells where they began: that counts while it is
there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pliant.nodectl.host import procfs
from pliant.nodectl.spool import UNREADABLE, Spool, all_spools

logger = logging.getLogger("pliant.nodectl")


def own_spools(folder: Path) -> Iterator[Spool]:
    """Yield the worlds of a node; forget those that run for another folder, and end nobody."""
    for spool in all_spools(folder):
        other = None if _has_ended(spool) else other_owner(spool)
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


def other_owner(spool: Spool) -> Path | None:
    """Return the folder for which the processes of a world run, if that is not the one given."""
    node, shim = spool.directory.parent.parent, spool.shim()
    keeper = shim.pid if shim is not None and shim.alive() else None
    held = procfs.open_folders(keeper) if keeper is not None else []
    if any(_same(handle, node) for handle in held):
        return None
    for handle in held:
        path = _link_target(handle)
        if _same(handle, path):  # it has not been removed
            return path
    places = [(home, spool.directory) for home in _recorded_folders(spool)]
    if keeper is not None and (state := _start_variable(keeper, "PLIANT_STATE_DIR")):
        places.append((Path(state) / node.name, node))
    others = (there for there, here in places if there.exists() and not _same(there, here))
    return next(others, None)


def _recorded_folders(spool: Spool) -> Iterator[Path]:
    """Yield where the folder of a world was when its ranks were told, as far as that is known."""
    with suppress(*UNREADABLE):
        yield Path(spool.request().environment["PLIANT_TOKEN_FILE"]).parent
    with suppress(*UNREADABLE):
        for rank in spool.ranks().values():
            if rank.alive() and (token := _start_variable(rank.pid, "PLIANT_TOKEN_FILE")):
                yield Path(token).parent


def _has_ended(spool: Spool) -> bool:
    """Return whether there is nothing to take over: such ends are as true in a copy."""
    with suppress(*UNREADABLE):
        return len(spool.exits()) >= len(spool.request().ranks)
    return False


def _start_variable(pid: int, name: str) -> str:
    """Return a variable with which a process was started; empty without it."""
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
