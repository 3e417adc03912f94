"""Counting loops and safe points."""

import time
from dataclasses import dataclass

from pliant.appkit.errors import LoopError


@dataclass(frozen=True, slots=True)
class Position:
    """Where the application is: newcomers start here."""

    loop: int
    iteration: int


class Loops:
    """Loops are numbered from 1 in the order in which they begin, alike on every process."""

    def __init__(self) -> None:
        #: Number of the loop that began last.
        self.number = 0
        #: Inside a ``steps`` loop.
        self.active = False
        #: The last ``steps`` loop that this process was in, until all have agreed that they left
        #: it; 0: none.
        self.left = 0
        self.iteration = 0
        #: Of the present loop; 0: unknown.
        self.iterations = 0
        self.safe_points = 0
        self._last_safe_point = 0.0
        self._sites: list[object] = []  # of safe points in while-loops, since the last `steps`

    def begin(self, iterations: int) -> int:
        """A ``steps`` loop begins; its number.

        Raises:
            LoopError: another one is not over.
        """
        if self.active:
            raise LoopError("job.steps loops cannot be nested: a newcomer could not enter there")
        self.active, self._sites = True, []
        self.iteration, self.iterations = 0, iterations
        self.number += 1
        return self.number

    def end(self) -> None:
        """The ``steps`` loop is over."""
        self.active = False

    def at_site(self, site: object) -> bool:
        """A ``safe_point`` call at this place of the program; whether it begins a loop.

        Raises:
            LoopError: inside a ``steps`` loop, or after another one of the same loop.
        """
        if self.active:
            raise LoopError(
                "job.safe_point() is for while-loops; inside job.steps a newcomer could not "
                "continue there"
            )
        self.iteration += 1
        if self._sites and site == self._sites[-1]:
            return False
        if site in self._sites:
            raise LoopError(
                "a loop has one job.safe_point(): this call comes again after another one, and "
                "newcomers, which join at the first, could not go on at the second"
            )
        self._sites.append(site)
        self.number += 1
        self.iteration, self.iterations = 0, 0
        return True

    def passed(self) -> None:
        """A safe point was reached."""
        self.safe_points += 1
        self._last_safe_point = time.monotonic()

    @property
    def remaining(self) -> int:
        """Iterations of the present loop that are left; 0: unknown."""
        return max(0, self.iterations - self.iteration)

    @property
    def since_safe_point_s(self) -> float:
        """Return the seconds since the last safe point, or -1 if there was none yet."""
        last = self._last_safe_point
        return time.monotonic() - last if last else -1.0
