"""The hierarchies of control groups on this host, and where this process may make groups in them.

Version 1 has one hierarchy for each controller, version 2 has one for all. Both may be mounted on
the same host, but a controller is in one hierarchy only. Shims use this module, so it imports
nothing that loads slowly.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

#: The group into which a controller moves, so that its parent group may have controllers (v2).
CONTROLLER_GROUP = "pliant-controller"

#: Controllers that are used if they are available.
CONTROLLERS = ("cpuset", "memory", "pids", "freezer")

#: Those that version 2 has.
_V2_CONTROLLERS = ("cpuset", "memory", "pids")


class Mount(NamedTuple):
    """A hierarchy of control groups that is mounted on this host."""

    #: Names of its controllers; empty for version 2.
    controllers: frozenset[str]
    version: int
    #: The group that is visible at `folder`.
    root: str
    folder: str


class Base(NamedTuple):
    """A folder in which this process may make control groups."""

    version: int
    folder: str


def parse_mounts(text: str) -> list[Mount]:
    """Return the hierarchies that ``/proc/self/mountinfo`` lists.

    ``text`` is its content. Of two mounts on one folder, the later one hides the earlier one.
    """
    found: dict[str, Mount] = {}
    for line in text.splitlines():
        words, _, rest = line.partition(" - ")
        fields, more = words.split(), rest.split()
        if len(fields) < 5 or len(more) < 3 or more[0] not in {"cgroup", "cgroup2"}:
            continue
        version = 2 if more[0] == "cgroup2" else 1
        names = frozenset(more[2].split(",")) & frozenset(CONTROLLERS) if version == 1 else ()
        found[fields[4]] = Mount(frozenset(names), version, fields[3], _unescape(fields[4]))
    return list(found.values())


def _unescape(path: str) -> str:
    return path.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")


def parse_groups(text: str) -> list[tuple[frozenset[str], str]]:
    """Return the controllers and path of each group in the content of ``/proc/self/cgroup``.

    The entry of version 2 has no controllers.
    """
    found = []
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            number, names, path = parts
            found.append((frozenset(names.split(",")) if number != "0" else frozenset(), path))
    return found


def locate(
    controller: str, mounts: list[Mount], groups: list[tuple[frozenset[str], str]]
) -> Base | None:
    """Return this process's control group for a controller; None if it is not visible here.

    Args:
        controller: the name of the controller; empty for the hierarchy of version 2.
        mounts: the mounted hierarchies, as `parse_mounts` returns them.
        groups: the groups of this process, as `parse_groups` returns them.
    """
    for mount in mounts:
        if controller in mount.controllers or (not controller and mount.version == 2):
            for names, path in groups:
                if controller in names or (not controller and not names):
                    inside = _below(path, mount.root)
                    if inside is not None:
                        return Base(mount.version, mount.folder + inside.rstrip("/"))
    return None


def _below(path: str, root: str) -> str | None:
    """Return ``path`` relative to the root of a mount; None if the mount does not show it."""
    if root == "/":
        return path
    if path == root or path.startswith(f"{root}/"):
        return path[len(root) :]
    return None


def own_group(controller: str) -> Base | None:
    """Return this process's control group for a controller; None if it is not visible here.

    An empty ``controller`` stands for the hierarchy of version 2.
    """
    return locate(controller, _mounts(), parse_groups(_read("/proc/self/cgroup")))


@lru_cache(maxsize=1)
def _mounts() -> list[Mount]:
    return parse_mounts(_read("/proc/self/mountinfo"))


@lru_cache(maxsize=8)
def base(controller: str) -> Base | None:
    """Return the folder in which this process may make groups with a controller; None if nowhere.

    The first result is kept for later calls. Otherwise a later call would return the group that a
    shim (the parent of a job's ranks) has made for itself and entered.

    Args:
        controller: its name; empty for a group of version 2, with or without controllers.
    """
    found = own_group(controller)
    if found is None and controller:
        unified = base("")
        usable = unified is not None and _enable(unified.folder, controller)
        return unified if usable else None
    if found is None:
        return None
    if os.path.basename(found.folder) == CONTROLLER_GROUP:
        found = Base(found.version, os.path.dirname(found.folder))
    usable = os.access(found.folder, os.W_OK) and os.access(f"{found.folder}/cgroup.procs", os.W_OK)
    return found if usable else None


def find_bases() -> None:
    """Find out where control groups can be made, and keep the result for `base`.

    This is called before the first fork, so that forked shims use the same result.
    """
    for controller in ("", *CONTROLLERS):
        base(controller)


def enable_controllers() -> None:
    """Arrange that version 2 groups made by this node controller can have cgroup controllers.

    Only a group without processes may give controllers to its children. So if this process is
    alone in its group, as in a systemd unit with `Delegate=yes`, it moves into a new child group.
    """
    group = own_group("")
    if group is None or not any(map(available, _V2_CONTROLLERS)):
        return
    with suppress(OSError, ValueError):
        with open(f"{group.folder}/cgroup.procs", encoding="ascii") as file:
            alone = {int(line) for line in file} == {os.getpid()}
        if alone and os.path.exists(f"{group.folder}/cgroup.type"):  # the root group has no type
            child = f"{group.folder}/{CONTROLLER_GROUP}"
            os.makedirs(child, exist_ok=True)
            write(f"{child}/cgroup.procs", "0")
            base.cache_clear()


def available(controller: str) -> bool:
    """Return whether this process's cgroup (version 2) has a controller such as ``memory``."""
    group = own_group("")
    names = _read(f"{group.folder}/cgroup.controllers").split() if group else []
    return controller in names


def _enable(folder: str, controller: str) -> bool:
    """Enable a controller for the children of a v2 group; return whether they have it."""
    if controller not in _V2_CONTROLLERS:
        return False
    control = f"{folder}/cgroup.subtree_control"
    write(control, f"+{controller}")
    return controller in _read(control).replace("+", " ").split()


def write(path: str, text: str) -> bool:
    """Write to a control file of a group; return whether the kernel accepted it."""
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    except OSError:
        return False
    return True


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""
