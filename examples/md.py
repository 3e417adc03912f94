"""Molecular dynamics of a Lennard-Jones liquid in a periodic box, with cell lists.

Pairs of atoms at a distance of less than 2.5 sigma interact by::

    V(r) = 4 epsilon ((sigma/r)^12 - (sigma/r)^6) - V(2.5 sigma)

Newton's equations are integrated by velocity Verlet, in reduced units (sigma = epsilon = m = 1).
The box is divided into cells at least as wide as the range of the force, so that an atom interacts
only with atoms in its own cell and in the 26 cells around it. All processes have the same number of
cells, to within one. In each step, atoms that have changed their cell are sent to the process of
the new cell, and each process receives copies of the atoms in the cells around its own. An atom
takes 112 bytes, so 400,000 atoms (about ``--edge 46``) take 44.8 MB::

    python -m pliant.examples.md --edge 5 --steps 100
    mpiexec -n 3 python -m pliant.examples.md
    jobsub -n 1-8 python -m pliant.examples.md --edge 20 --steps 1000 --every 5

The checksum is the same on any number of processes and after any resizes: atoms are always ordered
by cell and number, the forces on each atom are added in this order, and sums over all atoms are
exact (`common.exact_sum`).
"""

import argparse
from functools import lru_cache

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit import Job, malleable
from pliant.examples import common

Numbers = NDArray[np.float64]
Whole = NDArray[np.int64]
#: ``turns`` counts how often an atom has crossed the box in each direction.
ATOM = np.dtype(
    [
        *[("number", "i8"), ("cell", "i8"), ("turns", "i8", 3)],
        *[("place", "f8", 3), ("speed", "f8", 3), ("force", "f8", 3)],
    ]
)
Atoms = NDArray[np.void]
RANGE, DENSITY, TEMPERATURE, STEP = 2.5, 0.8442, 0.72, 0.004
SHIFT = 4 * (RANGE**-12 - RANGE**-6)
SEED = 1924
#: The number of atoms whose pairs are in memory at a time.
CHUNK = 250


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = common.options(__doc__, steps=100)
    parser.add_argument(
        "--edge",
        type=common.positive,
        default=5,
        help="unit cells of 4 atoms along each edge of the box, at least 5 (%(default)s)",
    )
    args = parser.parse_args(argv)
    if args.edge < 5:
        parser.error(f"--edge {args.edge}: a box of less than 5 holds no 3 cells along an edge")
    return args


class Box:
    """The periodic box and its cells."""

    def __init__(self, edge: int) -> None:
        #: The number of unit cells of the crystal along an edge.
        self.units = edge
        self.length = edge * (4 / DENSITY) ** (1 / 3)
        self.cells = int(self.length / RANGE)
        cell = np.arange(self.cells**3)
        place = np.stack(
            [cell // self.cells**2, cell // self.cells % self.cells, cell % self.cells]
        )
        beside = place[:, :, None] + np.indices((3, 3, 3)).reshape(3, 1, 27) - 1
        i, j, k = beside % self.cells
        #: The 27 cells in the neighbourhood of each cell, and the offsets of their periodic images.
        self.around: Whole = (i * self.cells + j) * self.cells + k
        self.away: Numbers = beside // self.cells * self.length
        self.needed = lru_cache(maxsize=1)(self._needed)

    def cell(self, place: Numbers) -> Whole:
        """Return the cell number of each position."""
        x, y, z = np.minimum(place * (self.cells / self.length), self.cells - 1).astype(int).T
        return np.asarray((x * self.cells + y) * self.cells + z)

    def owner(self, cell: Whole, size: int) -> Whole:
        """Return the rank that owns each cell when there are ``size`` ranks."""
        return cell * size // self.cells**3

    def _needed(self, size: int) -> NDArray[np.bool_]:
        """Return an array (rank, cell): whether the rank needs copies of the atoms in the cell."""
        needed = np.zeros((size, self.cells**3), bool)
        cells = np.arange(self.cells**3)
        needed[self.owner(cells, size)[:, None], self.around] = True
        needed[self.owner(cells, size), cells] = False
        return needed


def crystal(box: Box, rank: int, size: int) -> Atoms:
    """Return the local atoms of a crystal with random velocities and no total momentum."""
    corners = np.stack(np.meshgrid(*[np.arange(box.units)] * 3, indexing="ij"), axis=-1)
    basis = np.array([[0, 0, 0], [0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]]) + 0.25
    places = (corners.reshape(-1, 1, 3) + basis).reshape(-1, 3) * (box.length / box.units)
    atoms = np.zeros(len(places), ATOM)
    atoms["number"] = np.arange(len(atoms))
    atoms["place"], atoms["cell"] = places, box.cell(places)
    speed = np.random.default_rng(SEED).normal(size=places.shape)
    speed -= speed.mean(axis=0)
    atoms["speed"] = speed * np.sqrt(TEMPERATURE / (speed**2).mean())
    own: Atoms = atoms[box.owner(atoms["cell"], size) == rank]
    return own


def in_order(atoms: Atoms) -> Atoms:
    ordered: Atoms = atoms[np.lexsort((atoms["number"], atoms["cell"]))]
    return ordered


def copies_around(atoms: Atoms, box: Box, comm: MPI.Intracomm) -> Atoms:
    """Return the local atoms and copies of the atoms in neighbouring cells, in order."""
    seen = atoms[["number", "cell", "place"]]
    needed = box.needed(comm.size)[:, atoms["cell"]]
    copies = comm.alltoall([seen[wanted].copy() for wanted in needed])
    return in_order(np.concatenate([seen, *copies]))


def attract(atoms: Atoms, box: Box, comm: MPI.Intracomm) -> Numbers:
    """Set the forces on the local atoms, which must be sorted; return their potentials."""
    near = copies_around(atoms, box, comm)
    first = np.searchsorted(near["cell"], np.arange(box.cells**3 + 1))
    places = np.ascontiguousarray(near["place"].T)
    potential = np.empty(len(atoms))
    for start in range(0, len(atoms), CHUNK):
        chunk = slice(start, start + CHUNK)
        potential[chunk] = attract_some(atoms[chunk], places, first, box)
    return potential


def attract_some(atoms: Atoms, places: Numbers, first: Whole, box: Box) -> Numbers:
    """Set the forces on a part of the local atoms, and return the potentials of these atoms.

    ``places`` are the positions of all atoms near them, and ``first`` has for each cell the index
    of its first atom in ``places``.
    """
    cells = box.around[atoms["cell"]].ravel()
    number = first[cells + 1] - first[cells]
    # All pairs, ordered by local atom, then by neighbouring cell, then by atom in this cell.
    own = np.repeat(np.arange(len(atoms)), number.reshape(-1, 27).sum(axis=1))
    other = np.arange(len(own)) + np.repeat(first[cells] - np.cumsum(number) + number, number)
    images = atoms["place"].T[:, :, None] - box.away[:, atoms["cell"]]
    x, y, z = (
        np.repeat(image.ravel(), number) - place[other]
        for image, place in zip(images, places, strict=True)
    )
    square = x * x + y * y + z * z
    pairs = np.flatnonzero((square < RANGE**2) & (square > 0))  # 0 is the atom itself.
    own = own[pairs]
    inverse = 1 / square[pairs]
    sixth = inverse * inverse * inverse
    push = 24 * inverse * sixth * (2 * sixth - 1)
    for axis, distance in enumerate((x, y, z)):
        atoms["force"][:, axis] = np.bincount(own, push * distance[pairs], len(atoms))
    return np.bincount(own, 4 * sixth * (sixth - 1) - SHIFT, len(atoms)).astype(float)


def drift(atoms: Atoms, box: Box) -> None:
    """Do the first part of a step: half of the velocity change and the whole movement."""
    atoms["speed"] += 0.5 * STEP * atoms["force"]
    atoms["place"] += STEP * atoms["speed"]
    turns = np.floor(atoms["place"] / box.length)
    atoms["place"] -= turns * box.length
    atoms["turns"] += turns.astype(int)
    atoms["cell"] = box.cell(atoms["place"])


def energy(atoms: Atoms, potential: Numbers, comm: MPI.Intracomm) -> float:
    x, y, z = atoms["speed"].T
    return 0.5 * common.exact_sum(comm, x * x + y * y + z * z + potential)


def momentum(atoms: Atoms, comm: MPI.Intracomm) -> list[float]:
    return [common.exact_sum(comm, speed) for speed in atoms["speed"].T]


@malleable(sizes="1-64")
def main(job: Job, args: argparse.Namespace) -> None:
    box = Box(args.edge)
    atoms = job.items(
        "atoms",
        ATOM,
        init=lambda rank, size: crystal(box, rank, size),
        owner=lambda here, size: box.owner(here["cell"], size),
    )
    state = job.state(begin=0.0)
    common.tell_resizes(job)

    for step in job.steps(args.steps, every=args.every, save_every=args.save_every):
        comm = job.comm
        if step == 0:
            atoms.local = in_order(atoms.local)
            state.begin = energy(atoms.local, attract(atoms.local, box, comm), comm)
        drift(atoms.local, box)
        atoms.rebalance()
        atoms.local = in_order(atoms.local)
        here = atoms.local
        potential = attract(here, box, comm)
        here["speed"] += 0.5 * STEP * here["force"]
        common.pause(args.pause)

    end, push = energy(here, potential, comm), momentum(here, comm)
    result = common.digest(comm, here)
    if comm.rank == 0:
        number = 4 * args.edge**3
        print(f"{step + 1} steps of {number} atoms, energy {state.begin:.6f} -> {end:.6f}")
        print(f"momentum {max(map(abs, push)):.1e}")
        print(f"checksum {result}", flush=True)


if __name__ == "__main__":
    main(arguments())
