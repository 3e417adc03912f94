"""Cost of many nodes to the server: their controllers, and a job on all of them.

The server is real and has its default settings. One other process speaks the protocol of all
controllers (`apps/many_controllers.py`), with a connection and a stream for each: registration, a
heartbeat every two seconds, readiness and exits. It starts no processes, so that only the server is
measured.

*memory*: resident memory of the server's process, without nodes, with all nodes, and after the
jobs.

*idle*: processor time of the server in percent of one processor, during a period with heartbeats
only.

*registered*: from the start of the other process, which has to import gRPC, until the server has
welcomed the last node.

*last order*: for a job with one processor on each node, from the acknowledgement of its submission
until the last node has its order. *running*: until all nodes have reported to the server that the
job was started. *ended*: from the order to cancel the job until all nodes have reported that it has
ended. As always, each start is stored on disk before its orders are sent.

Budget: 1000 controllers on unix sockets, or 500 over TLS with certificates (``--tls``), in < 200 MB
and < 20 threads.

``python benchmarks/bench_nodes.py [--tls] [NODES...]``
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack

import psutil
from benchkit import busy, figures, folders, verdict
from benchkit.many_nodes import Controllers, controllers, create_cluster, server, used

from pliant.client.api import Client

NODES, ROUNDS, IDLE_S = (500, 1000), 10, 20.0
BUDGET_MB, BUDGET_THREADS = 200, 20

Samples = dict[str, float]


def memory(process: psutil.Process) -> str:
    """Return a text with resident and shared memory in MB, threads and open descriptors."""
    full = process.memory_full_info()
    return (
        f"{full.rss / 2**20:.0f} MB resident, {full.pss / 2**20:.0f} MB shared out, "
        f"{process.num_threads()} threads, {process.num_fds()} descriptors"
    )


def idle(process: psutil.Process) -> float:
    """Return the processor time of a process without work, in percent of one processor."""
    time.sleep(2.0)  # what came before has ended
    before, began = used(process), time.monotonic()
    time.sleep(IDLE_S)
    return 100 * (used(process) - before) / (time.monotonic() - began)


def reached(client: Client, job: int, states: set[str]) -> None:
    """Wait until a job is in one of these states; end with a message after two minutes."""
    deadline = time.monotonic() + 120
    while client.job(job).state not in states:
        if time.monotonic() > deadline:
            raise SystemExit(f"job {job} is {client.job(job).state}, not {states}")
        time.sleep(0.02)


def one_job(client: Client, words: Controllers, process: psutil.Process, number: int) -> Samples:
    """Run a job on all nodes; return the seconds of each stage, and the server's processor time.

    Args:
        client: the connection to the server.
        words: the process that acts as all controllers.
        process: the process of the server.
        number: the number of nodes.
    """
    before = used(process)
    job = client.submit("/bin/true", sizes=number, type="mpi", stdout="/dev/null")
    submitted = time.time()
    told, first, last = words.next("started")
    if int(told) != job:
        raise SystemExit(f"the orders are for job {told:.0f}, not for {job}")
    reached(client, job, {"RUNNING"})
    cancelled = time.time()
    client.cancel(job)
    client.wait(job)
    history = {event.kind: event.time for event in client.history(job)}
    return {
        "submitted -> first order": first - submitted,
        "submitted -> last order": last - submitted,
        "submitted -> running": history["job.running"] - submitted,
        "cancelled -> ended": history["job.ended"] - cancelled,
        "processor time of the server": used(process) - before,
    }


def measure(number: int, *, tls: bool) -> bool:
    """Measure a cluster with ``number`` nodes; return whether it is within the budgets."""
    with ExitStack() as stack:
        base = stack.enter_context(folders())
        if tls:
            create_cluster(base)
        settings = {"listen": "127.0.0.1:0"} if tls else {}
        process = stack.enter_context(server(base, **settings))
        client = stack.enter_context(Client())
        kind = "nodes over TLS" if tls else "nodes"
        print(f"{number} {kind}; {busy()}\n  alone:           {memory(process)}", flush=True)
        with controllers(base, number, tls=tls) as words:
            print(f"  registered:      all within {words.registered():.1f} s")
            percent = idle(process)
            print(f"  with all nodes:  {memory(process)}")
            print(f"  idle:            {percent:.1f} % of a processor")
            rounds = [one_job(client, words, process, number) for _ in range(ROUNDS)]
            print(f"  after {ROUNDS} jobs:   {memory(process)}")
            resident, threads = process.memory_info().rss / 2**20, process.num_threads()
    for name in rounds[0]:
        print(f"  {name + ', ms:':33} {figures([samples[name] for samples in rounds])}")
    good = verdict(f"memory of the server with {number} nodes", resident, BUDGET_MB, "MB")
    return verdict("its threads", threads, BUDGET_THREADS, "") and good


def main(words: list[str]) -> int:
    """Measure with each number of nodes; return 1 if one is over budget, else 0."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    tls = "--tls" in words
    numbers = [int(word) for word in words if word != "--tls"]
    good = [measure(number, tls=tls) for number in numbers or NODES]
    return 0 if all(good) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
