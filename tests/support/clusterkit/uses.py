"""What daemons use, from one rest to the next: they do not swell (I10).

At a rest they have the threads, descriptors and memory of an earlier one, but for what the server
remembers of jobs that have ended (for an hour) and a margin for what allocators keep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psutil

from testkit.processes import children
from testkit.waiting import wait_until

#: A daemon may have this many more descriptors and threads: a connection or two of a user or an
#: application, and pools that fill only when many ask at once - of the server two readers with a
#: database connection, of gRPC a worker or two.
DESCRIPTORS, THREADS = 4, 4
#: And so much more memory: in parts of what it had, in one life and over lives, and bytes for each
#: job that has ended since.
MARGIN, LIFE_MARGIN, BYTES_PER_JOB = 0.10, 0.40, 16 << 10
#: A connection is closed, a worker ends and a young daemon has begun to wait in this time, seconds.
CALM_S = 10.0


@dataclass(frozen=True)
class Use:
    """What a process uses; memory in bytes."""

    resident: int
    #: But for one for each child: a launcher keeps a few shims, and a channel to each.
    descriptors: int
    threads: int

    @classmethod
    def of(cls, process: psutil.Process) -> Use:
        """What a process uses now."""
        with process.oneshot():
            descriptors = process.num_fds() - len(children(process))
            return cls(process.memory_info().rss, descriptors, process.num_threads())

    def __str__(self) -> str:
        return f"{self.resident / 2**20:.1f} MB, {self.descriptors} fds, {self.threads} threads"


class Uses:
    """What the daemons of a cluster use at each rest.

    Compared are two things. Within the life of a process: with its second rest, for by then its
    caches and pools are filled. Over all lives: with whoever was in its place at the first rest,
    with a wider margin of memory, because a young process is smaller.
    """

    def __init__(self, daemons: Callable[[], Mapping[str, psutil.Process]]) -> None:
        self._daemons = daemons
        self._first: dict[str, tuple[Use, int]] = {}
        self._lives: dict[psutil.Process, list[tuple[Use, int]]] = {}
        #: What they used at the last rest.
        self.now: dict[str, Use] = {}

    def rest(self, jobs: int) -> None:
        """Look at all daemons when so many jobs have ended, as soon as they are calm.

        Raises:
            AssertionError: one of them swells.
        """
        seen: dict[psutil.Process, tuple[str, Use]] = {}
        wrong: list[str] = []

        def calm() -> bool:
            seen.clear()
            wrong[:] = self._look(seen, jobs)
            return not wrong

        try:
            wait_until(calm, timeout=CALM_S, every=0.05)
        except AssertionError:
            raise AssertionError("\n".join(wrong)) from None
        self.now = dict(seen.values())
        for process, (name, use) in seen.items():
            self._first.setdefault(name, (use, jobs))
            self._lives.setdefault(process, []).append((use, jobs))

    def _look(self, seen: dict[psutil.Process, tuple[str, Use]], jobs: int) -> list[str]:
        """Note who is there and what they use; what is wrong with it."""
        wrong, missing = [], set(self._first)
        try:
            for name, process in self._daemons().items():
                missing.discard(name)
                use = Use.of(process)
                seen[process] = name, use
                if process.status() != psutil.STATUS_SLEEPING:
                    wrong.append(f"I10: {name} is busy")
                wrong += self._swollen(name, process, use, jobs)
        except psutil.NoSuchProcess as error:
            return [f"I10: {error}"]
        return wrong + [f"I10: {name} is gone" for name in sorted(missing)]

    def _swollen(self, name: str, process: psutil.Process, now: Use, jobs: int) -> list[str]:
        found = []
        if len(life := self._lives.get(process, [])) > 1:
            found += swollen(name, *life[1], now, jobs, MARGIN)
        if name in self._first:
            found += swollen(name, *self._first[name], now, jobs, LIFE_MARGIN)
        return found


def swollen(
    name: str, before: Use, jobs_before: int, now: Use, jobs: int, margin: float
) -> list[str]:
    """Return what a daemon has too much of, after so many jobs; empty: nothing."""
    found, ended = [], max(0, jobs - jobs_before)
    if now.resident > before.resident * (1 + margin) + ended * BYTES_PER_JOB:
        found.append("memory")
    if now.descriptors > before.descriptors + DESCRIPTORS:
        found.append("descriptors")
    if now.threads > before.threads + THREADS:
        found.append("threads")
    return [f"I10: {name} keeps {what}: {before}, then {now} after {ended} jobs" for what in found]
