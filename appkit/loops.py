"""Count loops and safe points, equally on all processes."""

import time
from dataclasses import dataclass

from pliant.appkit.appkit_errors import LoopError


@dataclass(frozen=True, slots=True)
class Position:
    """The loop and the iteration at which joining ranks, or a restarted job, continue."""

    loop: int
    iteration: int


class Loops:
    """Numbers the loops from 1 in the order in which they begin.

    A loop has the same number on all processes.
    """

    def __init__(self) -> None:
        #: Number of the loop that began last.
        self.number = 0
        #: Whether the program is inside a ``steps`` loop.
        self.active = False
        #: Number of the last ``steps`` loop until all processes have agreed that they left it; 0
        #: afterwards.
        self.left = 0
        self.iteration = 0
        #: Number of iterations of the present loop; 0 if unknown.
        self.iterations = 0
        self.safe_points = 0
        self._last_safe_point = 0.0
        self._sites: list[object] = []  # of safe points in while-loops, since the last `steps`

    def begin(self, iterations: int) -> int:
        """Begin a ``steps`` loop of ``iterations`` iterations, and return its number.

        Raises:
            LoopError: the program is inside another ``steps`` loop.
        """
        if self.active:
            raise LoopError(
                "job.steps loops cannot be nested: a joining rank could not enter there"
            )
        self.active, self._sites = True, []
        self.iteration, self.iterations = 0, iterations
        self.number += 1
        return self.number

    def end(self) -> None:
        """Record that this process has ended its ``steps`` loop; others may still be in it."""
        self.active = False

    def at_site(self, site: object) -> bool:
        """Count a call of ``job.safe_point``, and return whether it begins a while-loop.

        Args:
            site: place of the call in the program.

        Raises:
            LoopError: inside a ``steps`` loop, or if a loop has ``safe_point`` calls at several
                places.
        """
        if self.active:
            raise LoopError(
                "job.safe_point() is for while-loops; inside job.steps a joining rank could not "
                "continue there"
            )
        self.iteration += 1
        if self._sites and site == self._sites[-1]:
            return False
        if site in self._sites:
            raise LoopError(
                "a loop has one job.safe_point(): this call comes again after another one, and "
                "joining ranks, which enter at the first, could not continue at the second"
            )
        self._sites.append(site)
        self.number += 1
        self.iteration, self.iterations = 0, 0
        return True

    def passed(self) -> None:
        """Count a safe point that this process has passed, and note the time."""
        self.safe_points += 1
        self._last_safe_point = time.monotonic()

    @property
    def remaining(self) -> int:
        """Return the number of iterations of the present loop that are left; 0 if unknown."""
        return max(0, self.iterations - self.iteration)

    @property
    def since_safe_point_s(self) -> float:
        """Return the seconds since the last safe point, or -1 if there was none yet."""
        last = self._last_safe_point
        return time.monotonic() - last if last else -1.0
