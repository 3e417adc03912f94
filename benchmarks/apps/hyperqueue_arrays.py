"""Workers of HyperQueue in this process; each line on stdin makes them run an array to its end.

Needs the package hyperqueue, and nothing of Pliant. Prints ``up`` when all workers were started,
and after each array the seconds until it was acknowledged and until its last task had ended.

``python benchmarks/apps/hyperqueue_arrays.py FOLDER NODES CPUS TASKS COMMAND...``
"""

import sys
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig


def main(folder: str, nodes: int, cpus: int, tasks: int, command: list[str]) -> None:
    """Run one array of ``tasks`` tasks for each line on stdin, until stdin is closed.

    Args:
        folder: where HyperQueue's server keeps its files.
        nodes: the number of workers.
        cpus: the processors of each worker.
        tasks: the number of tasks of each array.
        command: the command that each task runs.
    """
    with LocalCluster(server_dir=folder) as cluster:
        for _ in range(nodes):
            cluster.start_worker(WorkerConfig(cores=cpus))
        client = cluster.client()
        print("up", flush=True)
        for _ in sys.stdin:
            start = time.perf_counter()
            job = Job()
            for _ in range(tasks):
                job.program(command, stdout=None, stderr=None)
            submitted = client.submit(job)
            acknowledged = time.perf_counter() - start
            client.wait_for_jobs([submitted])
            print(acknowledged, time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5:])
