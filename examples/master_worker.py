"""A coordinator hands out integrals to a changing set of workers.

The results are in the job's state, so they are kept when the process that collected them ends. The
checksum does not depend on the number of processes::

    python -m pliant.examples.master_worker [master_worker.yaml]
    jobsub -n 1-8 python -m pliant.examples.master_worker
"""

import hashlib
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from mpi4py import MPI

from pliant.appkit import Job, malleable
from pliant.examples import common

#: (decay, frequency) of one integral.
Task = tuple[float, float]
Settings = dict[str, Any]


def read_settings(path: Path) -> Settings:
    settings: Settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    return settings


def integrate(task: Task, settings: Settings) -> float:
    """Return the integral of exp(-decay x) cos(frequency x), by Simpson's rule."""
    decay, frequency = task
    common.pause(settings["pause_s"])
    x = np.linspace(settings["low"], settings["high"], 2 * settings["panels"] + 1)
    y = np.exp(-decay * x) * np.cos(frequency * x)
    weights = np.full(x.size, 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    return float((weights * y).sum() * (x[1] - x[0]) / 3)


def hand_out(comm: MPI.Intracomm, tasks: list[Task]) -> list[float]:
    """Distribute the tasks to the workers. Return the results in order of the tasks."""
    results = [0.0] * len(tasks)
    idle = list(range(1, comm.size))
    following = iter(enumerate(tasks))
    busy = 0
    status = MPI.Status()
    while True:
        while idle and (task := next(following, None)) is not None:
            comm.send(task, idle.pop())
            busy += 1
        if not busy:
            break
        place, value = comm.recv(status=status)
        results[place] = value
        idle.append(status.source)
        busy -= 1
    for worker in range(1, comm.size):
        comm.send(None, worker)
    return results


def work(comm: MPI.Intracomm, settings: Settings) -> None:
    """Compute tasks until the coordinator ends the batch."""
    while (order := comm.recv(source=0)) is not None:
        place, task = order
        comm.send((place, integrate(task, settings)), 0)


@malleable(sizes="1-64")
def main(job: Job, path: Path) -> None:
    settings = job.once(lambda: read_settings(path))
    tasks: list[Task] = list(itertools.product(settings["decays"], settings["frequencies"]))
    state = job.state(done=0, results=[])
    common.tell_resizes(job)

    while True:
        job.safe_point()  # Between batches no task is under way.
        if state.done == len(tasks):
            break
        comm = job.comm
        batch = tasks[state.done : state.done + settings["batch"]]
        if comm.size == 1:
            state.results += [integrate(task, settings) for task in batch]
        elif comm.rank == 0:
            state.results += hand_out(comm, batch)
        else:
            work(comm, settings)
        state.done += len(batch)
        job.save()  # The state is a few numbers, so saving is cheap.

    if job.first:
        digest = hashlib.sha256(np.array(state.results).tobytes()).hexdigest()
        print(f"{len(tasks)} integrals, sum {sum(state.results):.12g}")
        print(f"checksum {digest}", flush=True)


if __name__ == "__main__":
    default = Path(__file__).with_suffix(".yaml")
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
