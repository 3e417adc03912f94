"""The two groups of workloads of Chen, Xiao and Zhang 2002, five traces each (section 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from statistics import NormalDist

from pliant.simulator.inputs.workload import WorkloadError
from pliant.simulator.time_shared.jobs import SharedJob
from pliant.simulator.time_shared.settings import MB

#: The programs of each group: name, largest demand in MB, and lifetime in seconds (Tables 1 and 2).
#: Where Table 2 prints a range of demands, this is its upper end.
PROGRAMS: Mapping[int, tuple[tuple[str, float, float], ...]] = {
    1: (
        ("apsi", 196.0, 2619.0),
        ("gcc", 145.0, 228.0),
        ("gzip", 195.0, 249.0),
        ("mcf", 80.0, 969.0),
        ("vortex", 115.0, 345.0),
        ("bzip", 200.0, 403.0),
    ),
    2: (
        ("bit-r", 64.22, 192.26),
        ("m-sort", 64.27, 82.76),
        ("m-m", 66.37, 4902.29),
        ("t-sim", 4.64, 41.63),
        ("metis", 4.30, 124.41),
        ("r-sphere", 39.66, 318.64),
        ("r-wing", 23.39, 72.78),
    ),
}
#: Sigma (which equals mu) and the number of jobs of each trace (section 3.3.2).
TRACES: Mapping[int, tuple[float, int]] = {
    1: (4.0, 359),
    2: (3.7, 448),
    3: (3.0, 578),
    4: (2.0, 684),
    5: (1.5, 777),
}
#: Jobs are submitted for about an hour. The printed last submissions are 3581 to 3589 s.
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class ChenWorkload:
    """The parameters of a workload of Chen, Xiao and Zhang.

    Raises:
        WorkloadError: a value is invalid. The message names the parameter.
    """

    group: int = 1
    trace: int = 3
    #: The number of jobs; 0 for that of the trace.
    jobs: int = 0
    #: The part of the jobs that is kept, chosen at random.
    share: float = 1.0
    #: The demand of all jobs in MB; 0 for those of the programs.
    demand_mb: float = 0.0

    def __post_init__(self) -> None:
        if self.group not in PROGRAMS:
            raise WorkloadError(f"group: expected 1 or 2, not {self.group}")
        if self.trace not in TRACES:
            raise WorkloadError(f"trace: expected 1 to 5, not {self.trace}")
        if self.jobs < 0:
            raise WorkloadError(f"jobs: expected at least 1, or 0 for the trace, not {self.jobs}")
        if not 0 < self.share <= 1:
            raise WorkloadError(f"share: expected above 0 and at most 1, not {self.share}")
        if not self.demand_mb >= 0:
            raise WorkloadError(f"demand_mb: expected at least 0, not {self.demand_mb}")

    def make(self, seed: int, nodes: int) -> list[SharedJob]:
        """Return the jobs of one run, in order of submission.

        Programs and homes are drawn with equal probabilities, because Chen, Xiao and Zhang 2002 say
        only that they are random.

        Args:
            seed: the seed of all random numbers.
            nodes: the number of nodes; each job has one of them as its home node.
        """
        rng = Random(f"{seed}:chen:{self.group}:{self.trace}")
        sigma, number = TRACES[self.trace]
        times = sorted(submission_time(rng.random(), sigma) for _ in range(self.jobs or number))
        made = []
        for place, time in enumerate(times, 1):
            name, demand, cpu_s = rng.choice(PROGRAMS[self.group])
            home, is_kept = rng.randrange(nodes), rng.random() < self.share
            if is_kept:
                demand = self.demand_mb or demand
                made.append(SharedJob(place, time, cpu_s, demand * MB, home, name))
        return made


def submission_time(part: float, sigma: float) -> float:
    """Return the time, in seconds, by which the fraction ``part`` of all jobs has been submitted.

    The submission rate of Chen, Xiao and Zhang 2002 (formula 1) is the density of a lognormal
    distribution times the time, with mu = sigma. Its integral until t is proportional to the normal
    distribution function of (ln t - mu - sigma^2) / sigma.

    Args:
        part: above 0 and at most 1.
        sigma: the parameter of the trace.
    """
    normal = NormalDist(sigma + sigma * sigma, sigma)
    whole = normal.cdf(math.log(HOUR_S))
    return math.exp(normal.inv_cdf(max(part, 1e-12) * whole))
