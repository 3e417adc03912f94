"""The workloads of KOALA's experiments (Buisson et al. 2007, 6.1 and 6.3): FT and GADGET-2.

The paper states three points for each application: the run time on 2 processors, the best run time,
and the largest size (46 for GADGET-2, 32 for FT). In between, the run time on n processors is taken
to be ``s + w / n``. FT runs on powers of two only.
"""

from random import Random

from pliant.core.values.sizes import Sizes, parse_sizes
from pliant.core.values.speedup import Speedup, Table
from pliant.simulator.inputs.costs import MAX_S
from pliant.simulator.inputs.models import sampling
from pliant.simulator.inputs.workload import SimJob, Workload

#: The nodes of the testbed (Table 1).
TESTBED = 272
#: The size of rigid jobs, and the smallest size of malleable ones (6.3).
SMALLEST = 2


def koala(
    *,
    jobs: int = 300,
    gap: float = 120.0,
    rigid: float = 0.0,
    processors: int = TESTBED,
    ft_best: int = 32,
    gadget_best: int = 46,
    seed: int = 0,
) -> Workload:
    """Make jobs that are submitted at equal intervals, each FT or GADGET-2 with equal probability.

    The applications and kinds of jobs depend on the seed only, so that workloads with other gaps
    have the same jobs. The workloads of the paper are called Wm, Wmr, W'm and W'mr.

    Args:
        jobs: the number of jobs.
        gap: seconds between two submissions: 120 for Wm and Wmr, 30 for W'm and W'mr.
        rigid: the fraction of jobs that are rigid, on 2 processors, from 0 (Wm, W'm) to 1; 0.5 for
            Wmr and W'mr.
        processors: the number of processors of the machine.
        ft_best: the processors on which FT takes its best time; more do not help.
        gadget_best: the processors on which GADGET-2 takes its best time.
        seed: the seed of all random numbers.

    Raises:
        WorkloadError: a parameter is invalid.
    """
    sampling.require("jobs", jobs >= 1, "at least 1", jobs)
    sampling.require("gap", 0 <= gap <= MAX_S, f"a number from 0 to {MAX_S:g}", gap)
    sampling.require("rigid", 0 <= rigid <= 1, "a part between 0 and 1", rigid)
    sampling.require("ft_best", 2 < ft_best <= 32, "3 to 32", ft_best)
    sampling.require("gadget_best", 2 < gadget_best <= 46, "3 to 46", gadget_best)
    applications = (
        (*_curve(120.0, 60.0, ft_best), parse_sizes("2-32:pow2")),
        (*_curve(600.0, 240.0, gadget_best), parse_sizes("2-46")),
    )
    apps, kinds = Random(f"{seed}:apps"), Random(f"{seed}:kinds")
    made = []
    for number in range(jobs):
        work, speedup, sizes = applications[0 if apps.random() < 0.5 else 1]
        is_malleable = kinds.random() >= rigid
        made.append(
            SimJob(
                id=number + 1,
                submit=number * gap,
                work=work,
                sizes=sizes if is_malleable else Sizes((SMALLEST,)),
                requested=SMALLEST,
                speedup=speedup,
                malleable=is_malleable,
            )
        )
    return Workload(made, processors, name="koala")


def _curve(slow: float, fast: float, best: int) -> tuple[float, Speedup]:
    """Return a program's work, in seconds on one processor, and its speedup.

    Args:
        slow: seconds on 2 processors.
        fast: seconds on ``best`` processors.
        best: more processors than this do not help.
    """
    parallel = (slow - fast) / (1 / SMALLEST - 1 / best)
    serial = slow - parallel / SMALLEST
    alone = serial + parallel
    # Many jobs end when others are submitted. The times have to be the same number for that, so
    # the speedup is made from the run times, and not by Amdahl's formula, which rounds differently.
    points = tuple((n, alone / (serial + parallel / n)) for n in range(1, best + 1))
    return alone, Table(points)
