"""Burgers' equation with adaptive mesh refinement: a pulse that becomes a shock and fades.

The equation is solved on a periodic square with finite volumes (Engquist and Osher's flux)::

    du/dt + d(u^2/2)/dx + d(u^2/2)/dy = 0

The mesh consists of blocks of 8 x 8 cells. A block is split into four where the solution jumps, and
four blocks are joined where it has become smooth. Neighbours differ by at most one level. Both
sides of a face compute its flux from the same values, so that the sum of the solution is preserved.
The program asks for more processors when it has more than ``--blocks`` blocks for each of them, and
gives processors back when it no longer needs them::

    python -m pliant.examples.amr --levels 3 --steps 1200
    mpiexec -n 3 python -m pliant.examples.amr
    jobsub -n 1-8 python -m pliant.examples.amr --pause 0.05

The checksum is the same on any number of processes and after any resizes. Blocks keep their global
order through every resize, and each is computed from its neighbours' edges only. The mesh and the
length of a step depend on maxima, which do not depend on the order of their values.
"""

import argparse

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit import Job, malleable
from pliant.examples import common
from pliant.examples.mesh import (
    BLOCK,
    ROOTS,
    SIDES,
    Blocks,
    Key,
    N,
    Where,
    across,
    directory,
    keys,
    remesh,
)

Numbers = NDArray[np.float64]
#: Edges by key of the block, axis and direction.
Edges = dict[tuple[Key, int, int], Numbers]
MOST_PROCESSES = 64


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = common.options(__doc__, steps=600, every=4)
    parser.add_argument(
        "--levels", type=common.positive, default=2, help="of refinement (%(default)s)"
    )
    parser.add_argument(
        "--blocks", type=common.positive, default=16, help="for a process (%(default)s)"
    )
    return parser.parse_args(argv)


def pulse(rank: int, size: int) -> Blocks:
    """Return the blocks of this process in the initial mesh."""
    blocks = np.zeros(ROOTS * ROOTS, BLOCK)
    blocks["key"] = [(0, i, j) for i in range(ROOTS) for j in range(ROOTS)]
    bump = np.exp(-25 * ((np.arange(ROOTS * N) + 0.5) / (ROOTS * N) - 0.4) ** 2)
    u = bump[:, None] * bump
    blocks["u"] = u.reshape(ROOTS, N, ROOTS, N).swapaxes(1, 2).reshape(-1, N, N)
    return blocks[len(blocks) * rank // size : len(blocks) * (rank + 1) // size]


def edges_around(blocks: Blocks, where: Where, comm: MPI.Intracomm) -> Edges:
    """Return the outermost cells of local blocks and their neighbours, by block, axis and side."""
    here: Edges = {}
    outboxes: list[Edges] = [{} for _ in range(comm.size)]
    for key, u in zip(keys(blocks), blocks["u"], strict=True):
        for axis, step in SIDES:
            edge = here[key, axis, step] = u.take(0 if step < 0 else -1, axis=axis)
            for other in across(key, axis, step, where):
                outboxes[where[other]][key, axis, step] = edge
    outboxes[comm.rank].clear()
    for inbox in comm.alltoall(outboxes):
        here |= inbox
    return here


def outside(key: Key, axis: int, step: int, where: Where, edges: Edges) -> Numbers:
    """Return the neighbours' cells along a side of a block: 2 N values, twice as fine as the block.

    Values of neighbours at the same or a coarser level are repeated.
    """
    found = [edges[other, axis, -step] for other in across(key, axis, step, where)]
    if len(found) == 2:
        return np.concatenate(found)
    (other,) = across(key, axis, step, where)
    if other[0] == key[0]:
        return found[0].repeat(2)
    half = key[2 - axis] % 2 * (N // 2)
    return found[0][half : half + N // 2].repeat(4)


def flux(low: Numbers, high: Numbers) -> Numbers:
    squares: Numbers = np.maximum(low, 0.0) ** 2 + np.minimum(high, 0.0) ** 2
    return 0.5 * squares


def side_flux(low: Numbers, high: Numbers) -> Numbers:
    """Return the flux through a side, for each cell of the block, from values at both sides.

    ``low`` and ``high`` have twice the resolution of the block.
    """
    fine = flux(low, high)
    return 0.5 * (fine[:, None, ::2] + fine[:, None, 1::2])


def widths(blocks: Blocks) -> Numbers:
    """Return the width of the cells of each block."""
    found: Numbers = np.ldexp(1 / (ROOTS * N), -blocks["key"][:, 0])
    return found


def advance(blocks: Blocks, comm: MPI.Intracomm) -> float:
    """Advance by the longest step that the finest cells allow. Return its length."""
    where = directory(blocks, comm)
    edges = edges_around(blocks, where, comm)
    fastest = np.max(np.abs(blocks["u"]), axis=(1, 2)) / widths(blocks)
    length: float = 0.4 / comm.allreduce(float(fastest.max(initial=0.0)), MPI.MAX)
    change = np.zeros_like(blocks["u"])
    for axis in (0, 1):
        below, above = (
            np.array([outside(key, axis, step, where, edges) for key in keys(blocks)])
            for step in (-1, 1)
        )
        u = np.moveaxis(blocks["u"], 1 + axis, 1)
        faces = [
            side_flux(below.reshape(-1, 2 * N), u[:, 0].repeat(2, axis=1)),
            flux(u[:, :-1], u[:, 1:]),
            side_flux(u[:, -1].repeat(2, axis=1), above.reshape(-1, 2 * N)),
        ]
        change += np.moveaxis(np.diff(np.concatenate(faces, axis=1), axis=1), 1, 1 + axis)
    blocks["u"] -= (length / widths(blocks))[:, None, None] * change
    return length


def integral(blocks: Blocks, comm: MPI.Intracomm) -> float:
    area = widths(blocks)[:, None, None] ** 2
    return common.exact_sum(comm, blocks["u"] * area)


def adjust(job: Job, blocks: int, wanted: int) -> None:
    """Ask for processors or give some back after the mesh has changed."""
    if wanted > job.comm.size:
        job.request(f"{job.comm.size + 1}-{wanted}", why=f"{blocks} blocks")
    elif wanted < job.comm.size:
        job.release(to=wanted, why=f"{blocks} blocks")


@malleable(sizes=f"1-{MOST_PROCESSES}", evolving=True)
def main(job: Job, args: argparse.Namespace) -> None:
    blocks = job.items("blocks", BLOCK, init=pulse)
    state = job.state(time=0.0, begin=0.0, most=0, wanted=0)
    common.tell_resizes(job)

    for step in job.steps(args.steps, every=args.every, save_every=args.save_every):
        comm = job.comm
        if step == 0:
            state.begin = integral(blocks.local, comm)
        if step % 4 == 0:
            blocks.local = remesh(blocks.local, comm, args.levels)
            blocks.rebalance()
            number = sum(blocks.counts())
            state.most = max(state.most, number)
            wanted = min(-(-number // args.blocks), MOST_PROCESSES)
            if wanted != state.wanted:
                adjust(job, number, wanted)
            state.wanted = wanted
        state.time += advance(blocks.local, comm)
        common.pause(args.pause)

    end, number = integral(blocks.local, comm), sum(blocks.counts())
    result = common.digest(comm, blocks.local)
    if comm.rank == 0:
        print(f"{step + 1} steps to time {state.time:.4g}, {number} blocks, at most {state.most}")
        print(f"integral {state.begin:.15g} -> {end:.15g}")
        print(f"checksum {result}", flush=True)


if __name__ == "__main__":
    main(arguments())
