"""The processor time that the ranks of jobs use, sampled from /proc."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from pliant.client.cluster import process_table

#: Seconds between two samples.
INTERVAL_S = 0.2
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")

#: The number of a job, and a processor of the cluster.
Place = tuple[int, int]


@dataclass(frozen=True)
class Sample:
    """The processor time of all ranks until one moment, and on which processors ranks are alive."""

    #: In seconds since the epoch.
    at: float
    #: Processor seconds since the beginning, including those of ranks that have ended.
    spent_s: Mapping[Place, float]
    #: Where ranks live.
    living: Set[Place]


class ProcessorUse:
    """Within its context, samples the processor time of the ranks of all jobs, in a thread."""

    def __init__(self, state: Path) -> None:
        """Sample the cluster with this state directory."""
        self._folder = f"{state.resolve()}/"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        # The environment of processes that are older than this sampler is not read.
        self._others = {pid: process_table.start_time(pid) for pid in process_table.pids()}
        self._ranks: dict[int, tuple[Place, float]] = {}
        self._past: dict[Place, float] = {}
        self.samples: list[Sample] = []

    def __enter__(self) -> ProcessorUse:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self._sample()

    def _sample(self) -> None:
        present: dict[int, tuple[Place, float]] = {}
        for pid in process_table.pids():
            if pid in self._others and self._others[pid] == process_table.start_time(pid):
                continue
            place = self._ranks[pid][0] if pid in self._ranks else self._place(pid)
            if place is not None and (spent := _spent_s(pid)) is not None:
                present[pid] = (place, spent)
        for pid, (place, spent) in self._ranks.items():
            if pid not in present:
                self._past[place] = self._past.get(place, 0.0) + spent
        self._ranks = present
        total = dict(self._past)
        for place, spent in present.values():
            total[place] = total.get(place, 0.0) + spent
        living = {place for place, _ in present.values()}
        self.samples.append(Sample(time.time(), total, living))

    def _place(self, pid: int) -> Place | None:
        """Return the job and the processor of a rank; None for other processes."""
        env = process_table.environment(pid)
        if env.get("PLIANT_TOKEN_FILE", "").startswith(self._folder) and "PLIANT_PROCESSOR" in env:
            return int(env["PLIANT_JOB"]), int(env["PLIANT_PROCESSOR"])
        return None


def _spent_s(pid: int) -> float | None:
    """Return the processor time that a process has used, in seconds; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else (int(fields[11]) + int(fields[12])) * _TICK_S
