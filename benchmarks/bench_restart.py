"""Time until a server answers again after it was killed while 10,000 jobs wait.

The cluster has one node with one processor. One job holds the processor, and all others wait. In
each round, the server and then the process of the running job are killed (SIGKILL), and the server
is started again on its database. These times are measured from the start of its process:

*answer*: until the server has answered a request of a user, which asks for the nodes. Budget:
< 3 s (see docs/measurements.md). The processor time that the server has used by then is printed,
too, because it depends less on other work on the machine.

*end*: until the controller has reported to the server that the former job has ended. The controller
runs all the time, and tries to connect to the server at intervals of at most two seconds.

*first instruction*: until the next waiting job prints that it runs. The first plan after the
restart is made between *end* and *first instruction*.

*running*: until the node has reported the start of this job to the server.

``python benchmarks/bench_restart.py [JOBS]``
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from benchkit import answering, busy, cluster, figures, verdict

from pliant.client.api import Client

JOBS, ROUNDS, SUBMITTERS = 10_000, 7, 4
BUDGET_S = 3.0
#: Says who it is and since when, by a rename, and holds its processor.
PROGRAM = 'echo "$$ $(date +%s.%N)" > new && mv new first; exec sleep 100000'


def submit(out: Path, number: int) -> float:
    """Submit ``number`` jobs; return how many were submitted per second."""

    def some(number: int) -> None:
        with Client() as client:
            for _ in range(number):
                client.submit("/bin/sh", "-c", PROGRAM, chdir=str(out), stdout="/dev/null")

    began = time.perf_counter()
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        list(pool.map(some, [number // SUBMITTERS] * SUBMITTERS))
    return number / (time.perf_counter() - began)


def wait_for_start(out: Path) -> tuple[int, float]:
    """Wait for the file that a job writes at its start, and remove the file.

    Returns:
        The job's process id, and its start in seconds since the epoch.
    """
    file = out / "first"
    deadline = time.monotonic() + 120
    while not file.exists():
        if time.monotonic() > deadline:
            raise SystemExit("no job was started within two minutes")
        time.sleep(0.01)
    pid, moment = file.read_text().split()
    file.unlink()
    return int(pid), float(moment)


def kill(server: psutil.Process) -> list[str]:
    """Kill the server with SIGKILL; return its command line, with which to start it again."""
    words = server.cmdline()
    server.kill()
    psutil.wait_procs([server], timeout=30)
    return words


class Rounds:
    """Kills and restarts the server in rounds, and keeps the measured seconds by name."""

    def __init__(self, client: Client, out: Path) -> None:
        self._client, self._out = client, out
        self._server = psutil.Process(
            int((out.parent / "run" / "server.pid").read_text().split()[0])
        )
        self.took: dict[str, list[float]] = {}
        self.resident: list[float] = []

    def measure(self, holder: int) -> int:
        """Kill the server and ``holder``, the process of the running job; measure the restart.

        Returns:
            The process id of the job that runs afterwards.
        """
        words = kill(self._server)
        os.kill(holder, signal.SIGKILL)
        began = time.time()
        with (self._out.parent / "state" / "server.log").open("ab") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        self._server = psutil.Process(process.pid)
        self._note("answer", answering(self._client) - began)
        times = self._server.cpu_times()
        self._note("processor time of it", times.user + times.system)
        holder, moment = wait_for_start(self._out)
        self._note("first instruction", moment - began)
        for name, kind in (("end", "job.failed"), ("running", "job.running")):
            self._note(name, self._wait_for_event(kind, began) - began)
        self.resident.append(self._server.memory_info().rss / 2**20)
        return holder

    def _wait_for_event(self, kind: str, since: float) -> float:
        """Wait until the history has an event of a kind at ``since`` or later; return its time."""
        while True:
            for event in self._client.history():
                if event.kind == kind and event.time >= since:
                    return event.time
            time.sleep(0.2)

    def _note(self, name: str, seconds: float) -> None:
        self.took.setdefault(name, []).append(seconds)


def main(words: list[str]) -> int:
    """Measure restarts, and compare with the budget; return 1 if it is exceeded, else 0."""
    number = int(words[0]) if words else JOBS
    with cluster(1, 1, "--strategy", "fcfs") as (client, out):
        print(f"{number} jobs, {submit(out, number):.0f} a second; {busy()}", flush=True)
        holder, _ = wait_for_start(out)
        rounds = Rounds(client, out)
        for _ in range(ROUNDS):
            holder = rounds.measure(holder)
        waiting = sum(job.state == "PENDING" for job in client.jobs())
    print(f"{waiting} jobs wait after {ROUNDS} restarts; {busy()}")
    for name, samples in rounds.took.items():
        print(f"process started -> {name + ', ms:':26} {figures(samples)}")
    print(f"the server's memory, MB:                   {figures(rounds.resident, 1.0)}")
    name = f"restart with {number} pending, p50"
    good = verdict(name, statistics.median(rounds.took["answer"]), BUDGET_S, "s")
    return 0 if good and waiting == number - 1 - ROUNDS else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
