"""Measure the seconds per iteration of each loop at each size, and the times of a resize.

Intervals are measured from safe point to safe point, because the library runs only there. The time
inside safe points, with waiting and resizes, does not count. Nor does the first interval after a
resize or at the start of a loop, in which caches are cold. Loops are identified by their place in
the source, so that a loop that is started again continues its measurements.
"""

import statistics
import time
from dataclasses import dataclass, field
from types import FrameType

from pliant.appkit.coordinator.messages import Measured

#: Number of intervals that are kept for each size; the oldest are replaced.
KEPT = 32
#: With fewer intervals, the speed counts as unknown.
MIN_INTERVALS = 3

#: File, first line of the function, and offset of the instruction; the same on all processes.
Site = tuple[str, int, int]


def site_of(frame: FrameType) -> Site:
    """Return the place in the source code that a stack frame is executing."""
    return (frame.f_code.co_filename, frame.f_code.co_firstlineno, frame.f_lasti)


@dataclass
class Samples:
    """The measured times of one loop at one number of processes, from safe point to safe point.

    The field names are part of the protocol.
    """

    #: Seconds per iteration of the last intervals.
    seconds: list[float] = field(default_factory=list)
    #: Number of all intervals.
    stretches: int = 0
    #: Number of iterations in all intervals.
    iterations: int = 0

    def add(self, seconds: float, iterations: int) -> None:
        """Add a time between two safe points: ``iterations`` iterations took ``seconds`` in all."""
        if len(self.seconds) < KEPT:
            self.seconds.append(seconds / iterations)
        else:
            self.seconds[self.stretches % KEPT] = seconds / iterations
        self.stretches += 1
        self.iterations += iterations


#: The samples of each loop at each size.
Table = dict[Site, dict[int, Samples]]


class IterationTimer:
    """Measures the seconds per iteration of the program's loops, between safe points.

    Each process has one, but only the measurements of rank 0 are used.
    """

    def __init__(self) -> None:
        """Create a timer that has no measurements yet."""
        self.table: Table = {}
        self._site: Site | None = None
        #: Start time and first iteration of the present interval; None if it does not count.
        self._since: tuple[float, int] | None = None
        self._next_counts = False  # whether the next interval counts

    def start_loop(self, site: Site) -> None:
        """Start to time the loop at ``site``; the time before its first safe point is left out."""
        self._site, self._since, self._next_counts = site, None, True

    def end_interval(self, iteration: int, size: int) -> None:
        """End the interval since the last safe point, and record its time unless it was discarded.

        Args:
            iteration: iterations of the loop so far.
            size: number of processes.
        """
        since, self._since = self._since, None
        if since is None or self._site is None:
            return
        began, first = since
        if iteration > first:
            sizes = self.table.setdefault(self._site, {})
            seconds = time.perf_counter() - began
            sizes.setdefault(size, Samples()).add(seconds, iteration - first)

    def discard_interval(self) -> None:
        """Leave out the interval that begins at this safe point: its first iteration is slow.

        Called at the first safe point of a loop, and after a resize or another action.
        """
        self._next_counts = False

    def begin_interval(self, iteration: int) -> None:
        """Begin an interval at ``iteration``, when the program leaves a safe point."""
        self._since = (time.perf_counter(), iteration) if self._next_counts else None
        self._next_counts = True

    def measured(self) -> tuple[Measured, ...]:
        """Return the speed of the present loop at each size that was measured often enough.

        That is at least `MIN_INTERVALS` intervals. May be called in any thread.
        """
        sizes = self.table.get(self._site, {}) if self._site is not None else {}
        return tuple(
            Measured(size, statistics.median(list(samples.seconds)), samples.iterations)
            for size, samples in sorted(sizes.items())
            if samples.stretches >= MIN_INTERVALS
        )


@dataclass
class ResizeTiming:
    """Durations of the steps of one resize, and the bytes it has moved."""

    #: Seconds of each step: ``join`` (growth only), ``check``, ``move``, ``commit``; and ``total``.
    seconds: dict[str, float] = field(default_factory=dict)
    bytes_moved: int = 0
    _since: float = field(default_factory=time.perf_counter)
    _began: float = field(default_factory=time.perf_counter)

    def end_step(self, step: str) -> None:
        """Record the seconds since the end of the last step as the duration of ``step``."""
        now = time.perf_counter()
        self.seconds[step] = now - self._since
        self.seconds["total"] = now - self._began
        self._since = now
