"""Processor-seconds that each user has used, with exponential decay.

The usage of a user with p processors follows ``dU/dt = p - U ln 2 / h``, where h is the half-life.
The solution over a time in which p is constant is exact::

    U(t + s) = U(t) 2^(-s/h) + p h / ln 2 (1 - 2^(-s/h))

So the result does not depend on how often the usage is computed. Slurm decays usage by the same
half-life (PriorityDecayHalfLife), but in steps of five minutes (PriorityCalcPeriod). Without decay
the usage is the sum of processors times seconds.
"""

from math import expm1, inf, log
from typing import NamedTuple

from pliant.core.values.processors import ProcessorMap

_LN_2 = log(2.0)


def decayed(seconds: float, processors: int, elapsed_s: float, half_life_s: float) -> float:
    """Return the usage after some time with a constant number of processors.

    Args:
        seconds: the usage at the beginning, in processor-seconds.
        processors: the number of processors that are used all the time.
        elapsed_s: the time that passes, in seconds. A negative time counts as none.
        half_life_s: usage counts half after this time; infinite if it does not decay.
    """
    if elapsed_s <= 0.0:
        return seconds
    if half_life_s == inf:
        return seconds + processors * elapsed_s
    lost = -expm1(-elapsed_s / half_life_s * _LN_2)
    return seconds - seconds * lost + processors * half_life_s / _LN_2 * lost


class Usage(NamedTuple):
    """The usage of a user in an account at one time, and the processors used from then on."""

    account: str
    user: str
    #: Processor-seconds at ``at``, with decay.
    seconds: float
    #: Seconds since the epoch.
    at: float
    #: The processors of the running jobs.
    processors: int

    def at_time(self, now: float, half_life_s: float) -> float:
        """Return the user's decayed usage at the time ``now``, in processor-seconds.

        The number of processors that the user has is assumed not to change until then.
        """
        return decayed(self.seconds, self.processors, now - self.at, half_life_s)


class OpenPhase(NamedTuple):
    """The present processors of a running job, and since when it has had exactly these."""

    #: Seconds since the epoch.
    since: float
    allocation: ProcessorMap
    #: The number of the run.
    run: int


class AllocationPhase(NamedTuple):
    """A period in which a job had the same processors: one row of the accounting."""

    job: int
    run: int
    user: str
    uid: int
    account: str
    #: Seconds since the epoch.
    start: float
    end: float
    processors: int
    #: Names of the nodes, in order of their processors.
    nodes: tuple[str, ...]
