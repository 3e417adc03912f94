"""Stars that attract each other: gravity by direct summation over all pairs.

Newton's equations, softened at short distances, in units in which G and the whole mass are 1::

    d2x_i/dt2 = sum_j m_j (x_j - x_i) / (|x_j - x_i|^2 + eps^2)^(3/2)

are integrated by leapfrog (kick, drift, kick). The stars begin as a Plummer sphere. All processes
have the same number of stars, to within one. In each step, a process receives the positions of all
stars and computes the accelerations of its own::

    python -m pliant.examples.nbody --stars 500 --steps 100
    mpiexec -n 3 python -m pliant.examples.nbody
    jobsub -n 1-8 python -m pliant.examples.nbody --stars 4000 --steps 1000 --every 5

The checksum is the same on any number of processes and after any resizes: stars keep their global
order through every resize, forces on each star are added in this order, and sums over all stars are
exact (`common.exact_sum`).
"""

import argparse

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit import Job, malleable
from pliant.examples import common

Numbers = NDArray[np.float64]
STAR = np.dtype([("mass", "f8"), ("place", "f8", 3), ("speed", "f8", 3), ("pull", "f8", 3)])
Stars = NDArray[np.void]
SOFTENING = 0.05
STEP = 0.01
SEED = 1687
#: The number of stars whose pairs with all others are in memory at a time.
CHUNK = 64


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = common.options(__doc__, steps=100)
    parser.add_argument(
        "--stars", type=common.positive, default=500, help="number of stars (%(default)s)"
    )
    return parser.parse_args(argv)


def plummer(number: int) -> Stars:
    """Return all stars of a Plummer sphere without total momentum, the same on every process."""
    random = np.random.default_rng(SEED)
    stars = np.zeros(number, STAR)
    stars["mass"] = 1 / number
    radius = 1 / np.sqrt(random.uniform(0.001, 0.99, number) ** (-2 / 3) - 1)
    stars["place"] = radius[:, None] * directions(random, number)
    escape = np.sqrt(2) * (1 + radius**2) ** -0.25
    # Half of the escape velocity nearly keeps the sphere in balance.
    stars["speed"] = (0.5 * escape)[:, None] * directions(random, number)
    for quantity in ("place", "speed"):
        stars[quantity] -= stars[quantity].mean(axis=0)
    return stars


def directions(random: np.random.Generator, number: int) -> Numbers:
    vectors: Numbers = random.normal(size=(number, 3))
    vectors /= np.sqrt((vectors**2).sum(axis=1))[:, None]
    return vectors


def share(stars: Stars, rank: int, size: int) -> Stars:
    return stars[len(stars) * rank // size : len(stars) * (rank + 1) // size]


def attract(stars: Stars, comm: MPI.Intracomm) -> Numbers:
    """Set the accelerations of the local stars; return the stars' potentials."""
    everybody = np.concatenate(comm.allgather(stars[["mass", "place"]].copy()))
    mass, (x, y, z) = everybody["mass"], np.ascontiguousarray(everybody["place"].T)
    potential = np.empty(len(stars))
    for first in range(0, len(stars), CHUNK):
        chunk = slice(first, first + CHUNK)
        own = stars["place"][chunk, :, None]
        away = (x - own[:, 0], y - own[:, 1], z - own[:, 2])
        square = away[0] * away[0] + away[1] * away[1] + away[2] * away[2] + SOFTENING**2
        inverse = mass / np.sqrt(square)
        potential[chunk] = -inverse.sum(axis=1) + stars["mass"][chunk] / SOFTENING
        inverse /= square
        for axis in range(3):
            stars["pull"][chunk, axis] = (inverse * away[axis]).sum(axis=1)
    return potential


def advance(stars: Stars, comm: MPI.Intracomm) -> Numbers:
    """Advance the local stars by one step; return their potentials."""
    stars["speed"] += 0.5 * STEP * stars["pull"]
    stars["place"] += STEP * stars["speed"]
    potential = attract(stars, comm)
    stars["speed"] += 0.5 * STEP * stars["pull"]
    return potential


def energy(stars: Stars, potential: Numbers, comm: MPI.Intracomm) -> float:
    x, y, z = stars["speed"].T
    return 0.5 * common.exact_sum(comm, stars["mass"] * (x * x + y * y + z * z + potential))


def momentum(stars: Stars, comm: MPI.Intracomm) -> list[float]:
    return [common.exact_sum(comm, stars["mass"] * speed) for speed in stars["speed"].T]


@malleable(sizes="1-64")
def main(job: Job, args: argparse.Namespace) -> None:
    stars = job.items("stars", STAR, init=lambda rank, size: share(plummer(args.stars), rank, size))
    state = job.state(begin=0.0)
    common.tell_resizes(job)

    for step in job.steps(args.steps, every=args.every, save_every=args.save_every):
        comm, here = job.comm, stars.local
        if step == 0:
            state.begin = energy(here, attract(here, comm), comm)
        potential = advance(here, comm)
        common.pause(args.pause)

    end, drift = energy(here, potential, comm), momentum(here, comm)
    result = common.digest(comm, here)
    if comm.rank == 0:
        print(f"{step + 1} steps, energy {state.begin:.9f} -> {end:.9f}")
        print(f"momentum {max(map(abs, drift)):.1e}")
        print(f"checksum {result}", flush=True)


if __name__ == "__main__":
    main(arguments())
