"""Heat in a plate: Jacobi iteration with halo exchange on a varying number of processes.

Run it alone, under mpiexec or under Pliant. The checksum at the end is always the same::

    python -m pliant.examples.heat [heat.yaml]
    mpiexec -n 4 python -m pliant.examples.heat
    jobsub -n 1-8 python -m pliant.examples.heat
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit import Job, malleable
from pliant.examples import common

Plate = NDArray[np.float64]
Settings = dict[str, Any]


def read_settings(path: Path) -> Settings:
    settings: Settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    if settings["rows"] < 64:
        raise SystemExit(f"{path}: rows: at least 64, one for every process")
    return settings


def exchange_halo(rows: Plate, comm: MPI.Intracomm, edge: Settings) -> None:
    """Receive the neighbours' border rows; at the ends of the plate use the edge temperature."""
    above = comm.rank - 1 if comm.rank > 0 else MPI.PROC_NULL
    below = comm.rank + 1 if comm.rank + 1 < comm.size else MPI.PROC_NULL
    comm.Sendrecv(rows[1], above, recvbuf=rows[-1], source=below)
    comm.Sendrecv(rows[-2], below, recvbuf=rows[0], source=above)
    if above == MPI.PROC_NULL:
        rows[0] = edge["top"]
    if below == MPI.PROC_NULL:
        rows[-1] = edge["bottom"]


def jacobi(rows: Plate, edge: Settings) -> float:
    """Replace each cell by the mean of its neighbours. Return the largest change."""
    old: Plate = rows[1:-1]
    new: Plate = rows[:-2] + rows[2:]
    new[:, 1:] += old[:, :-1]
    new[:, 0] += edge["left"]
    new[:, :-1] += old[:, 1:]
    new[:, -1] += edge["right"]
    new *= 0.25
    change = float(np.abs(new - old).max())
    old[...] = new
    return change


@malleable(sizes="1-64")
def main(job: Job, path: Path) -> None:
    settings = job.once(lambda: read_settings(path))
    shape = (settings["rows"], settings["columns"])
    plate = job.block("plate", shape, halo=1, init=lambda _: settings["inside"])
    common.tell_resizes(job)

    largest, every = np.inf, settings["every"]
    for it in job.steps(settings["iterations"], every, settings.get("save_every", 0)):
        comm, rows = job.comm, plate.with_halo
        exchange_halo(rows, comm, settings["edge"])
        change = jacobi(rows, settings["edge"])
        common.pause(settings["pause_s"] + settings["work_s"] / comm.size)
        if it % every == 0:
            largest = comm.allreduce(change, MPI.MAX)
            if largest < settings["tolerance"]:
                break

    result = common.digest(comm, rows[1:-1])
    if comm.rank == 0:
        print(f"{it + 1} iterations, last change {largest:.3g}")
        print(f"checksum {result}", flush=True)


if __name__ == "__main__":
    default = Path(__file__).with_suffix(".yaml")
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
