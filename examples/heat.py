"""Heat in a plate: Jacobi iteration with halo exchange, on any number of processes at any time.

Run it alone, under mpiexec or under Pliant; the checksum at the end is always the same::

    python -m pliant.examples.heat [heat.yaml]
    mpiexec -n 4 python -m pliant.examples.heat
    jobsub -n 1-8 python -m pliant.examples.heat
"""

import hashlib
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit import BlockArray, Change, Job, malleable

Plate = NDArray[np.float64]
Settings = dict[str, Any]


def read_settings(path: Path) -> Settings:
    settings: Settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    if settings["rows"] < 64:
        raise SystemExit(f"{path}: rows: at least 64, one for every process")
    return settings


def exchange_halo(plate: BlockArray, comm: MPI.Intracomm, edge: Settings) -> None:
    """Get the neighbours' border rows; at the ends of the plate the edge's temperature."""
    rows = plate.with_halo
    above = comm.rank - 1 if comm.rank > 0 else MPI.PROC_NULL
    below = comm.rank + 1 if comm.rank + 1 < comm.size else MPI.PROC_NULL
    comm.Sendrecv(rows[1], above, recvbuf=rows[-1], source=below)
    comm.Sendrecv(rows[-2], below, recvbuf=rows[0], source=above)
    if above == MPI.PROC_NULL:
        rows[0] = edge["top"]
    if below == MPI.PROC_NULL:
        rows[-1] = edge["bottom"]


def jacobi(plate: BlockArray, edge: Settings) -> float:
    """Replace each cell by the mean of its neighbours; the largest change."""
    rows = plate.with_halo
    old: Plate = rows[1:-1]
    new: Plate = rows[:-2] + rows[2:]
    new[:, 1:] += old[:, :-1]
    new[:, 0] += edge["left"]
    new[:, :-1] += old[:, 1:]
    new[:, -1] += edge["right"]
    new *= 0.25
    change = float(np.abs(new - old).max())
    plate.local = new
    return change


def checksum(plate: BlockArray, comm: MPI.Intracomm) -> str:
    """SHA-256 of the plate's bytes in global order; on rank 0, elsewhere empty."""
    if comm.rank != 0:
        comm.Send(np.ascontiguousarray(plate.local), 0)
        return ""
    digest = hashlib.sha256(plate.local.tobytes())
    for rank, (start, stop) in enumerate(plate.layout.blocks()):
        if rank > 0:
            part = np.empty((stop - start, *plate.shape[1:]))
            comm.Recv(part, rank)
            digest.update(part.tobytes())
    return digest.hexdigest()


@malleable(sizes="1-64")
def main(job: Job, path: Path) -> None:
    settings = job.once(lambda: read_settings(path))
    shape = (settings["rows"], settings["columns"])
    plate = job.block("plate", shape, axis=0, halo=1, init=lambda _: settings["inside"])
    state = job.state(change=np.inf)

    @job.after_resize
    def report(change: Change) -> None:
        if job.first and change.committed:
            print(f"{change.before} -> {change.after} processes", flush=True)

    for it in job.steps(settings["iterations"], every=settings["every"]):
        exchange_halo(plate, job.comm, settings["edge"])
        change = jacobi(plate, settings["edge"])
        time.sleep(settings["pause_s"] + settings["work_s"] / job.comm.size)
        if it % settings["every"] == 0:
            state.change = job.comm.allreduce(change, MPI.MAX)
            if state.change < settings["tolerance"]:
                break

    result = checksum(plate, job.comm)
    if job.first:
        print(f"{it + 1} iterations, last change {state.change:.3g}")
        print(f"checksum {result}", flush=True)


if __name__ == "__main__":
    default = Path(__file__).with_suffix(".yaml")
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
