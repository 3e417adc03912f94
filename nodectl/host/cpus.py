"""CPUs of this host: which belong to which slot, and the processes that are bound to them.

A *slot* is a processor that the scheduler assigns; a *CPU* is what the kernel counts, which is one
hardware thread. Shims use this module, so it imports nothing that loads slowly.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from pliant.nodectl.host import procfs

#: Rounds in which tasks are bound, because a task that is not bound yet may start others meanwhile.
_MAX_ROUNDS = 20

_TOPOLOGY = "/sys/devices/system/cpu"


class Place(NamedTuple):
    """The package and core of a CPU. CPUs with the same place are hardware threads of one core."""

    package: int
    core: int
    cpu: int


def parse_cpus(text: str) -> list[int]:
    """Read a list of CPUs such as ``0-3,8``, as the kernel writes it; return them sorted.

    Raises:
        ValueError: the text is not a list of numbers and ranges.
    """
    found = set[int]()
    for part in text.strip().split(","):
        first, dash, last = part.strip().partition("-")
        low, high = _number(first), _number(last if dash else first)
        if high < low:
            raise ValueError(f"{part}: the first CPU is above the last")
        found.update(range(low, high + 1))
    return sorted(found)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 6):
        raise ValueError(f"{text!r} is not the number of a CPU; write a list as in 0-3,8")
    return int(text)


def format_cpus(cpus: Iterable[int]) -> str:
    """Return a list of CPUs as the kernel reads it, such as ``0-3,8``."""
    parts: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def places(cpus: Iterable[int], folder: str = _TOPOLOGY) -> list[Place]:
    """Return package and core of each CPU; if the topology is unknown, one core for each CPU."""
    return [
        Place(
            _read_id(f"{folder}/cpu{cpu}/topology/physical_package_id", 0),
            _read_id(f"{folder}/cpu{cpu}/topology/core_id", cpu),
            cpu,
        )
        for cpu in cpus
    ]


def _read_id(path: str, default: int) -> int:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return default


def cpus_of_slots(slots: int, available: Sequence[Place]) -> list[tuple[int, ...]]:
    """Return the CPUs of each slot; an empty list if there are fewer CPUs than slots.

    With as many cores as slots or more, each slot gets the same number of whole cores, with all
    hardware threads that are available; neighbouring slots get neighbouring cores. Cores that are
    left over belong to no slot. With fewer cores, each slot gets one hardware thread: first one of
    each core, then the others, so that neighbouring slots are on different cores.
    """
    cores: dict[tuple[int, int], list[int]] = {}
    for place in sorted(available):
        cores.setdefault((place.package, place.core), []).append(place.cpu)
    if len(cores) >= slots:
        each = len(cores) // slots
        in_order = list(cores.values())
        groups = [in_order[slot * each : (slot + 1) * each] for slot in range(slots)]
        return [tuple(cpu for core in group for cpu in core) for group in groups]
    threads = sorted(
        (nr, at, cpu) for at, core in enumerate(cores.values()) for nr, cpu in enumerate(core)
    )
    return [(cpu,) for _, _, cpu in threads[:slots]] if len(threads) >= slots else []


def bind_tree(roots: Iterable[int], cpus: Collection[int], former: Collection[int] = ()) -> bool:
    """Bind all threads of processes and of their descendants to CPUs.

    A thread that the program has bound to some of its CPUs keeps those that are still allowed.

    Args:
        roots: the ids of the processes.
        cpus: the CPUs on which they may run from now on.
        former: CPUs to which they were bound before; empty if not known.

    Returns:
        Whether all threads are bound. False if a thread is another user's, or if the processes
        start new threads all the time.
    """
    allowed, before = frozenset(cpus), frozenset(former)
    roots = list(roots)
    for _ in range(_MAX_ROUNDS):
        changed = refused = False
        for root in roots:
            for pid in (root, *procfs.descendants(root)):
                for task in procfs.tasks(pid):
                    try:
                        changed |= _bind_task(task, allowed, before)
                    except ProcessLookupError:
                        continue  # it has just ended
                    except OSError:
                        refused = True
        if not changed:
            return not refused
    return False


def _bind_task(task: int, allowed: frozenset[int], former: frozenset[int]) -> bool:
    """Bind a thread to the allowed CPUs, or to those of them that its program has chosen.

    Args:
        task: the id of the thread.
        allowed: the CPUs on which it may run.
        former: the CPUs on which it might run before. If it is bound to only a part of them, the
            program has chosen this part.

    Returns:
        Whether the binding was changed.
    """
    now = os.sched_getaffinity(task)
    wanted = allowed if now == former else now & allowed or allowed
    if now == wanted:
        return False
    os.sched_setaffinity(task, wanted)
    return True
