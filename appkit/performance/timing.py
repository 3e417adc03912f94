"""How fast the program's loops are, at each size they have had.

Measured from safe point to safe point, which are the only places where the library is. What is left
out: the safe points themselves, with waiting and resizes, and the first stretch after a resize or
at the beginning of a loop, in which caches are cold. Loops are told apart by their place in the
program, so that a loop in a loop goes on where it left off.
"""

import statistics
import time
from dataclasses import dataclass, field
from types import FrameType

from pliant.appkit.coordinator.messages import Measured

#: Stretches between safe points that are kept for each size: old ones are forgotten.
KEPT = 32
#: With fewer of them nothing is known.
FEWEST = 3

#: File, first line of the function, and place in it: the same on all processes.
Site = tuple[str, int, int]


def site_of(frame: FrameType) -> Site:
    """The place in the program where a frame is."""
    return (frame.f_code.co_filename, frame.f_code.co_firstlineno, frame.f_lasti)


@dataclass
class Samples:
    """The last stretches of a loop at one size."""

    #: Seconds per iteration, of the last stretches.
    seconds: list[float] = field(default_factory=list)
    stretches: int = 0
    iterations: int = 0

    def add(self, seconds: float, iterations: int) -> None:
        """Count a stretch of so many iterations."""
        if len(self.seconds) < KEPT:
            self.seconds.append(seconds / iterations)
        else:
            self.seconds[self.stretches % KEPT] = seconds / iterations
        self.stretches += 1
        self.iterations += iterations


#: By place and size; what goes with the job through a resize.
Table = dict[Site, dict[int, Samples]]


class IterationTimer:
    """The measurements of this process; those of rank 0 count, and go with its role."""

    def __init__(self) -> None:
        """Begin without any."""
        self.table: Table = {}
        self._site: Site | None = None
        #: When the present stretch began, and with which iteration; None: it does not count.
        self._since: tuple[float, int] | None = None
        self._calm = False  # the next stretch counts

    def start_loop(self, site: Site) -> None:
        """A loop begins; what comes before its first safe point does not count."""
        self._site, self._since, self._calm = site, None, True

    def end_interval(self, iteration: int, size: int) -> None:
        """A safe point is reached."""
        since, self._since = self._since, None
        if since is None or self._site is None:
            return
        began, first = since
        if iteration > first:
            sizes = self.table.setdefault(self._site, {})
            seconds = time.perf_counter() - began
            sizes.setdefault(size, Samples()).add(seconds, iteration - first)

    def discard_interval(self) -> None:
        """Something happens at this safe point: the stretch that follows does not count."""
        self._calm = False

    def begin_interval(self, iteration: int) -> None:
        """The safe point is left."""
        self._since = (time.perf_counter(), iteration) if self._calm else None
        self._calm = True

    def measured(self) -> tuple[Measured, ...]:
        """The present loop at each size that is known well enough; from any thread."""
        sizes = self.table.get(self._site, {}) if self._site is not None else {}
        return tuple(
            Measured(size, statistics.median(list(samples.seconds)), samples.iterations)
            for size, samples in sorted(sizes.items())
            if samples.stretches >= FEWEST
        )


@dataclass
class ResizeTiming:
    """Times and volume of one resize."""

    #: By step: join (growth only), check, move, commit; and total.
    seconds: dict[str, float] = field(default_factory=dict)
    bytes_moved: int = 0
    _since: float = field(default_factory=time.perf_counter)
    _began: float = field(default_factory=time.perf_counter)

    def end_step(self, step: str) -> None:
        """A step is done."""
        now = time.perf_counter()
        self.seconds[step] = now - self._since
        self.seconds["total"] = now - self._began
        self._since = now
