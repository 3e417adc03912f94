"""Metrics of a simulation of several clusters, and the curves of KOALA's Figures 7 and 8."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from pliant.core.model.lifecycle import JobState
from pliant.simulator.multicluster.grid_jobs import GridRun
from pliant.simulator.multicluster.metric_names import (
    COUNTED,
    DESCRIPTIONS,
    SERIES,
    curve_points,
)
from pliant.simulator.run.metrics import quantile
from pliant.simulator.run.result import JobRecord


class GridMetrics:
    """Collects the measurements of a simulation of several clusters."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(
            COUNTED,
            0,
        )
        self.records: list[JobRecord] = []
        #: How many jobs were submitted so far.
        self.submitted = 0
        self._ran: list[GridRun] = []
        self._ends: dict[int, tuple[JobState, str]] = {}
        self._states: Counter[JobState] = Counter()
        #: When the number of held processors changed, and what it became.
        self._times: list[float] = []
        self._levels: list[int] = []
        #: When resizes were carried out.
        self._operations: list[float] = []

    def changes(self) -> int:
        """Return a number that rises with each event. If it is the same, nothing has changed."""
        return self.submitted + len(self._times) + len(self._operations) + len(self.records)

    def used(self, now: float, change: int) -> None:
        """Add ``change``, which may be negative, to the number of processors that jobs hold."""
        level = (self._levels[-1] if self._levels else 0) + change
        self._times.append(now)
        self._levels.append(level)

    def operation(self, now: float, *, grows: bool) -> None:
        """Count a resize that was carried out, as a growth or as a shrink."""
        self.counts["grows" if grows else "shrinks"] += 1
        self._operations.append(now)

    def ended(self, run: GridRun, state: JobState, reason: str) -> None:
        """Record the end of a job: its final state and the reason."""
        self._states[state] += 1
        self._ends[run.id] = (state, reason)
        if run.start is not None:
            self._ran.append(run)

    def released(self, run: GridRun) -> None:
        """Record a job that has ended and given all its processors back."""
        state, reason = self._ends[run.id]
        job = run.job
        self.records.append(
            JobRecord(
                id=job.id,
                submit=job.submit,
                start=run.start,
                end=run.end,
                processors=run.first_size,
                job_class="malleable" if job.malleable else "rigid",
                state=state,
                resizes=run.resizes,
                work=job.work if state is JobState.COMPLETED else 0.0,
                area=run.area,
                reason=reason,
                final_size=run.size if run.start is not None else 0,
            )
        )

    def summary(
        self, submits: Sequence[float], local_jobs: int, local_wait_s: float
    ) -> dict[str, float]:
        """Return all metrics, with the points of the curves.

        Args:
            submits: the times of submission.
            local_jobs: the number of local users' jobs.
            local_wait_s: the sum of the seconds that local jobs have waited.
        """
        ran = [record for record in self.records if record.start is not None]
        waits = [record.wait for record in ran]
        turnarounds = sorted(record.turnaround for record in ran)
        averages = [run.average_size for run in self._ran]
        first, last = min(submits, default=0.0), max(submits, default=0.0)
        end = max((record.end for record in ran), default=first)
        values = {
            "jobs": float(len(submits)),
            "completed": self._states[JobState.COMPLETED],
            "rejected": self._states[JobState.REJECTED],
            "failed": self._states[JobState.FAILED],
            "mean_wait_s": _mean(waits),
            "longest_wait_s": max(waits, default=0.0),
            "mean_execution_s": _mean([record.execution for record in ran]),
            "mean_turnaround_s": _mean(turnarounds),
            "p95_turnaround_s": quantile(turnarounds, 0.95),
            "average_size": _mean(averages),
            "average_size_spread": _spread(averages),
            "largest_size": _mean([float(run.largest_size) for run in self._ran]),
            "area": math.fsum(record.area for record in self.records),
            "used_nodes": self._mean_level(first, end),
            "busy_nodes": self._mean_level(first, last),
            "peak_nodes": max(self._levels, default=0),
            "schedule_span_s": end - first,
            "adaptations": self.counts["grows"] + self.counts["shrinks"],
            "lost_stubs_pct": 100 * self.counts["lost_stubs"] / max(1, self.counts["stubs"]),
            "local_jobs": local_jobs,
            "local_wait_s": local_wait_s / local_jobs if local_jobs else 0.0,
            **self.counts,
        }
        ordered = {name: float(values[name]) for name in DESCRIPTIONS}
        return ordered | self._distributions(ran) | self._series(first, last)

    def _distributions(self, ran: Sequence[JobRecord]) -> dict[str, float]:
        found = {
            "average_size": sorted(run.average_size for run in self._ran),
            "largest_size": sorted(float(run.largest_size) for run in self._ran),
            "execution_s": sorted(record.execution for record in ran),
            "turnaround_s": sorted(record.turnaround for record in ran),
        }
        return {
            key: quantile(values, place / 100)
            for name, values in found.items()
            for place, key in curve_points(name)
        }

    def _series(self, first: float, last: float) -> dict[str, float]:
        result = {}
        for name in SERIES:
            for percent, key in curve_points(name):
                time = first + (last - first) * percent / 100
                if name == "used_nodes":
                    result[key] = float(self._level(time))
                else:
                    result[key] = float(bisect_right(self._operations, time))
        return result

    def _level(self, time: float) -> int:
        place = bisect_right(self._times, time)
        return self._levels[place - 1] if place else 0

    def _mean_level(self, first: float, last: float) -> float:
        """Return the mean number of held processors between two times."""
        if last <= first:
            return 0.0
        times = [first, *(time for time in self._times if first < time < last), last]
        levels = (self._level(start) * (end - start) for start, end in pairwise(times))
        return math.fsum(levels) / (last - first)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found) if found else 0.0


def _spread(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(_mean([(value - mean) ** 2 for value in values]))
