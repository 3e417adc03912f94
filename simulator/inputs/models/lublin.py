"""Lublin and Feitelson's model of rigid jobs (1999, 2003): sizes, run times and a daily cycle."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Literal

from pliant.core.values.sizes import Sizes
from pliant.simulator.inputs.models import sampling
from pliant.simulator.inputs.workload import SimJob, Workload

#: A day consists of 48 half hours.
_BUCKETS = 48
_BUCKET_S = 1800.0
#: The cumulative distribution of the daily cycle begins at this half hour.
_CYCLE_START = 11
#: The longest run time and the longest gap, as natural logarithms of seconds.
_LONGEST_RUN = 12.0
_LONGEST_GAP = 13.0
#: log2 of the size of the machine for which the parameters were fitted.
_FITTED_FOR = 7.0


@dataclass(frozen=True, slots=True)
class JobTypeParameters:
    """The parameters of one type of jobs, with their names in the model."""

    serial: float
    pow2: float
    #: log2 of the smallest, the middle and the largest parallel size, on 128 processors.
    low: float
    middle: float
    high: float
    #: The part of the sizes below the middle.
    q: float
    #: Shape and scale of the gamma distributions of ln(run time), for short and for long jobs.
    run1: tuple[float, float]
    run2: tuple[float, float]
    #: The part of short jobs is pa * size + pb.
    pa: float
    pb: float
    #: Shape and scale of ln(gap) at rush hour, and of the daily cycle.
    arrivals: tuple[float, float]
    cycle: tuple[float, float]
    #: The factor between the rates of the rush hour and of the whole day.
    arar: float


BATCH = JobTypeParameters(
    0.2927, 0.6686, 1.2, 5, 7, 0.875, (6.57, 0.823), (639.1, 0.0156), -0.003, 0.6986,
    (6.0415, 0.8531), (6.1271, 5.2740), 1.0519,
)  # fmt: skip
INTERACTIVE = JobTypeParameters(
    0.1541, 0.625, 1, 3, 5.5, 0.705, (3.8351, 0.6605), (7.073, 0.6856), -0.0118, 0.9156,
    (6.5510, 0.6621), (8.9186, 3.6680), 0.9797,
)  # fmt: skip
TYPELESS = JobTypeParameters(
    0.244, 0.576, 0.8, 4.5, 7, 0.86, (4.2, 0.94), (312, 0.03), -0.0054, 0.78,
    (10.2303, 0.4871), (8.1737, 3.9631), 1.0225,
)  # fmt: skip

_KINDS = {
    "typeless": (TYPELESS,),
    "batch": (BATCH,),
    "interactive": (INTERACTIVE,),
    "both": (INTERACTIVE, BATCH),
}


def lublin(
    *,
    jobs: int = 1000,
    processors: int = 128,
    kind: Literal["typeless", "batch", "interactive", "both"] = "typeless",
    start_hour: float = 0.0,
    seed: int = 0,
) -> Workload:
    """Make a workload of rigid jobs as on parallel computers of the 1990s.

    If the machine does not have 128 processors, all bounds of log2(size) are shifted accordingly.

    Args:
        jobs: the number of jobs.
        processors: the number of processors of the machine.
        kind: the type of jobs; ``both`` mixes batch and interactive jobs, whose users are named
            ``batch`` and ``interactive``.
        start_hour: the hour of the day at time 0.
        seed: the seed of all random numbers.

    Raises:
        WorkloadError: a parameter is invalid.
    """
    sampling.require("jobs", jobs >= 1, "at least 1", jobs)
    sampling.require("processors", processors >= 2, "at least 2", processors)
    sampling.require("start_hour", 0 <= start_hour < 24, "an hour of the day", start_hour)
    rng = Random(seed)
    streams = [_Arrivals(kind, start_hour, rng) for kind in _KINDS[kind]]
    made = []
    for number, stream in enumerate(islice(_merged(streams), jobs), 1):
        size = draw_size(stream.kind, processors, rng)
        run = draw_run_time(stream.kind, size, rng)
        user = "" if len(streams) == 1 else "interactive" if stream is streams[0] else "batch"
        made.append(_job(number, float(int(stream.clock)), run, size, user))
    return Workload(made, processors, name=f"lublin {kind}")


def _job(number: int, submit: float, run: float, size: int, user: str) -> SimJob:
    """Return a job whose estimate is exactly its run time, because the model has no estimates."""
    return SimJob(number, submit, run * size, Sizes((size,)), size, max(1.0, run), user=user)


def draw_size(kind: JobTypeParameters, processors: int, rng: Random) -> int:
    """Return a random number of processors for one job."""
    chance = rng.random()
    if chance <= kind.serial:
        return 1
    shift = math.log2(processors) - _FITTED_FOR
    high = kind.high + shift
    low = min(kind.low, high)
    middle = min(max(kind.middle + shift, low), high)
    below = rng.random() <= kind.q
    exponent = rng.uniform(low, middle) if below else rng.uniform(middle, high)
    if chance <= kind.serial + kind.pow2:
        exponent = math.floor(exponent + 0.5)
    return min(processors, int(2.0**exponent + 0.5))


def draw_run_time(kind: JobTypeParameters, size: int, rng: Random) -> float:
    """Return a random run time for a job of this size, in whole seconds."""
    short = min(1.0, max(0.0, kind.pa * size + kind.pb))
    while True:
        shape, scale = kind.run1 if rng.random() <= short else kind.run2
        logarithm = rng.gammavariate(shape, scale)
        if logarithm <= _LONGEST_RUN:
            return float(math.floor(math.exp(logarithm)))


class _Arrivals:
    """Generates the arrival times of the jobs of one type.

    Gaps between arrivals are drawn for the rush hour, then stretched or shortened by the weight of
    the time of day.
    """

    def __init__(self, kind: JobTypeParameters, start_hour: float, rng: Random) -> None:
        self.kind = kind
        self.clock = 0.0
        self._rng = rng
        self._weights = daily_cycle(kind)
        self._bucket = int(start_hour * _BUCKETS / 24)
        self._points = 0.0
        self._rest = 0.0

    def advance(self) -> None:
        """Advance the time of this stream to the arrival of its next job."""
        self._points += self._rush_hour_gap() / _BUCKET_S
        gap, weights = 0.0, self._weights
        while self._points > weights[self._bucket]:
            self._points -= weights[self._bucket]
            self._bucket = (self._bucket + 1) % _BUCKETS
            gap += _BUCKET_S
        rest = self._points / weights[self._bucket]
        self.clock += gap + _BUCKET_S * (rest - self._rest)
        self._rest = rest

    def _rush_hour_gap(self) -> float:
        shape, scale = self.kind.arrivals
        while True:
            logarithm = self._rng.gammavariate(shape * self.kind.arar, scale)
            if logarithm <= _LONGEST_GAP:
                return math.exp(logarithm)


def _merged(streams: list[_Arrivals]) -> Iterator[_Arrivals]:
    """Merge streams of arrivals by time; yield the stream that has the next job."""
    for stream in streams:
        stream.advance()
    while True:
        first = min(streams, key=lambda stream: stream.clock)
        yield first
        first.advance()


def daily_cycle(kind: JobTypeParameters) -> list[float]:
    """Return the weights of the half hours of a day; their mean is 1."""
    shape, scale = kind.cycle
    weights = [0.0] * _BUCKETS
    for place in range(_CYCLE_START, _CYCLE_START + _BUCKETS):
        above, below = ((place + half) / scale for half in (0.5, -0.5))
        weights[(place - 1) % _BUCKETS] = gamma_cdf(shape, above) - gamma_cdf(shape, below)
    mean = math.fsum(weights) / _BUCKETS
    return [weight / mean for weight in weights]


def gamma_cdf(shape: float, value: float) -> float:
    """Return the probability that a gamma variate of scale 1 is below a value."""
    # The power series of the incomplete gamma function.
    term = total = 1.0 / shape
    factor = shape
    while term > total * 1e-16:
        factor += 1.0
        term *= value / factor
        total += term
    return total * math.exp(shape * math.log(value) - value - math.lgamma(shape))
