"""Models of speedup: how much faster a job runs on more processors.

A model is a function S of the number of processors with S(1) = 1. One processor does one unit of
work per second, so a job with W units of work takes W / S(n) seconds on n processors.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pliant.core.support.base_error import PliantError


class SpeedupError(PliantError, ValueError):
    """A model cannot be parsed or is not valid. The message says how to write it."""


@dataclass(frozen=True, slots=True)
class Linear:
    """Linear speedup: on n processors the program is n times as fast, S(n) = n."""

    def __call__(self, processors: int) -> float:
        """Return the speedup on this many processors."""
        return float(processors)

    def __str__(self) -> str:
        return "linear"


@dataclass(frozen=True, slots=True)
class Flat:
    """No speedup: S(n) = 1, because more processors do not help."""

    def __call__(self, processors: int) -> float:
        """Return the speedup on this many processors."""
        del processors
        return 1.0

    def __str__(self) -> str:
        return "none"


@dataclass(frozen=True, slots=True)
class Table:
    """Speedup from measured points: linear between them, constant beyond the last (Kumar 3.2.2)."""

    #: (processors, speedup), ascending; starts with (1, 1.0).
    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        sizes = [size for size, _ in self.points]
        if not sizes or sizes[0] != 1 or self.points[0][1] != 1.0:
            raise SpeedupError("a speedup table starts with 1=1")
        if sizes != sorted(set(sizes)):
            raise SpeedupError("the sizes of a speedup table ascend")
        if not all(0 < speedup < math.inf for _, speedup in self.points):
            raise SpeedupError("speedups are positive numbers")

    def __call__(self, processors: int) -> float:
        """Return the speedup on this many processors."""
        place = bisect_right(self.points, processors, key=lambda point: point[0])
        size, speedup = self.points[place - 1]
        if place == len(self.points):
            return speedup
        size_above, speedup_above = self.points[place]
        return speedup + (speedup_above - speedup) * (processors - size) / (size_above - size)

    def __str__(self) -> str:
        return "table:" + ",".join(f"{size}={speedup!r}" for size, speedup in self.points)


@dataclass(frozen=True, slots=True)
class Amdahl:
    """Speedup by Amdahl's law: S(n) = 1 / ((1 - f) + f / n), where f is the parallel fraction."""

    parallel: float

    def __post_init__(self) -> None:
        if not 0 <= self.parallel <= 1:
            raise SpeedupError("the parallel fraction is between 0 and 1")

    def __call__(self, processors: int) -> float:
        """Return the speedup on this many processors."""
        return 1.0 / ((1.0 - self.parallel) + self.parallel / processors)

    def __str__(self) -> str:
        return f"amdahl:{self.parallel!r}"


@dataclass(frozen=True, slots=True)
class Downey:
    """Speedup by Downey's model (1997), with average parallelism A >= 1 and sigma >= 0."""

    average: float
    sigma: float

    def __post_init__(self) -> None:
        if not (1 <= self.average < math.inf and 0 <= self.sigma < math.inf):
            raise SpeedupError("downey:A,SIGMA needs A >= 1 and SIGMA >= 0")

    def __call__(self, processors: int) -> float:
        """Return the speedup on this many processors."""
        n, a, sigma = float(processors), self.average, self.sigma
        if sigma >= 1:
            if n >= a + a * sigma - sigma:
                return a
            return n * a * (sigma + 1) / (sigma * (n + a - 1) + a)
        if n >= 2 * a - 1:
            return a
        if n <= a:
            return a * n / (a + sigma / 2 * (n - 1))
        return a * n / (sigma * (a - 0.5) + n * (1 - sigma / 2))

    def __str__(self) -> str:
        return f"downey:{self.average!r},{self.sigma!r}"


@dataclass(frozen=True, slots=True)
class Corrected:
    """A speedup model that is corrected by measurements at two or more sizes.

    The correction is the ratio of the measured speed to the speed that the model assumes. Between
    two measured sizes it is interpolated. Below the smallest and above the largest one it is
    constant. It is scaled so that ``S(1)`` does not change.
    """

    model: "Linear | Flat | Table | Amdahl | Downey"
    #: (processors, measured speed divided by the assumed one), ascending.
    factors: tuple[tuple[int, float], ...]

    def __call__(self, processors: int) -> float:
        """Return the speedup on this many processors."""
        return self.model(processors) * self._factor(processors) / self._factor(1)

    def _factor(self, processors: int) -> float:
        place = bisect_right(self.factors, processors, key=lambda point: point[0])
        if place in (0, len(self.factors)):
            return self.factors[max(0, place - 1)][1]
        (low, below), (high, above) = self.factors[place - 1 : place + 1]
        return below + (above - below) * (processors - low) / (high - low)

    def __str__(self) -> str:
        return str(self.model)


Speedup = Linear | Flat | Table | Amdahl | Downey | Corrected


def corrected(model: Speedup, seconds: Mapping[int, float]) -> Speedup:
    """Return the speedup model of a job, corrected by measured iteration times.

    One measured size says nothing about other sizes, so the model is then returned unchanged.

    Args:
        model: the model that the user stated.
        seconds: seconds per iteration by size, above 0.
    """
    if len(seconds) < 2 or isinstance(model, Corrected):
        return model
    factors = ((size, 1.0 / (seconds[size] * model(size))) for size in sorted(seconds))
    return Corrected(model, tuple(factors))


def expected_end(
    estimate_s: float, estimated_for: int, speedup: Speedup, size: int, done: float, since: float
) -> float:
    """Return when a job should end if it keeps its present size, in seconds since the epoch.

    The result is exactly start + estimate for a job that always had the size of its estimate.

    Args:
        estimate_s: estimated seconds on ``estimated_for`` processors.
        estimated_for: the size that the estimate was given for.
        speedup: the speedup of the job.
        size: the present size.
        done: work done before ``since``, in seconds on one processor.
        since: the time at which the job got its present size, in seconds since the epoch.
    """
    if not done and size == estimated_for:
        return since + estimate_s
    work = estimate_s * speedup(estimated_for)
    return since + max(0.0, work - done) / speedup(size)


def speedup_of(seconds: Mapping[int, float]) -> Table:
    """Return the speedup of a job from its measured iteration times.

    It is linear up to the smallest measured size and between measured sizes. Up to twice the
    largest one it is linear, too, so that strategies try larger sizes. Beyond that it is constant.

    Args:
        seconds: seconds per iteration by size, above 0. At least one.
    """
    sizes = sorted(seconds)
    least, most = sizes[0], sizes[-1]
    points = {1: 1.0}
    points.update((size, least * seconds[least] / seconds[size]) for size in sizes)
    points[2 * most] = 2 * points[most]
    return Table(tuple(points.items()))


#: The model of jobs that state none.
LINEAR = Linear()


def parse_speedup(text: str) -> Speedup:
    """Parse ``linear``, ``none``, ``amdahl:F``, ``downey:A,SIGMA`` or ``table:1=1,2=1.9,...``.

    Raises:
        SpeedupError: the text is not valid. The message says how to write it.
    """
    name, _, rest = text.strip().partition(":")
    make = _READERS.get(name)
    if make is None:
        raise SpeedupError(f"speedup {text!r}: write one of {', '.join(_FORMS)}")
    try:
        return make(rest)
    except (ValueError, TypeError) as error:
        detail = f": {error}" if isinstance(error, SpeedupError) else ""
        raise SpeedupError(f"speedup {text!r} is not of the form {_form(name)}{detail}") from None


_FORMS = ("linear", "none", "amdahl:FRACTION", "downey:AVERAGE,SIGMA", "table:1=1,SIZE=SPEEDUP,...")


def _form(name: str) -> str:
    return next(form for form in _FORMS if form.startswith(name))


def _linear(rest: str) -> Speedup:
    if rest:
        raise ValueError
    return LINEAR


def _none(rest: str) -> Speedup:
    if rest:
        raise ValueError
    return Flat()


def _downey(rest: str) -> Speedup:
    average, sigma = map(float, rest.split(","))
    return Downey(average, sigma)


def _table(rest: str) -> Speedup:
    def points() -> Iterator[tuple[int, float]]:
        for point in rest.split(","):
            size, speedup = point.split("=")
            yield int(size), float(speedup)

    return Table(tuple(points()))


_READERS: dict[str, Callable[[str], Speedup]] = {
    "linear": _linear,
    "none": _none,
    "amdahl": lambda rest: Amdahl(float(rest)),
    "downey": _downey,
    "table": _table,
}
