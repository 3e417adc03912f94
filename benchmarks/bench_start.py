"""Time from the acknowledgement of a submission to the job's first instruction; jobs per second.

Budgets: first instruction p50 <= 60 ms; the whole ``jobsub`` process p50 <= 100 ms; 1000 jobs that
run ``true``, from the first submission to the last end, >= 100 jobs/s.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchkit import cluster, figures, verdict

from pliant.client.api import Client

ROUNDS, DRAIN, SUBMITTERS = 40, 1000, 4


def first_instruction(client: Client, out: Path) -> list[float]:
    """Submit jobs one at a time that run ``date``; return how long each took to start.

    Returns:
        The seconds from each acknowledgement to the time that ``date`` prints.
    """
    waits = []
    for _ in range(ROUNDS):
        target = out / "now"
        job = client.submit(
            "/bin/date", "+%s.%N", sizes=1, type="uni", chdir=str(out), stdout=str(target)
        )
        acknowledged = time.time()
        client.wait(job)
        waits.append(float(target.read_text()) - acknowledged)
        target.unlink()
    return waits


def jobsub(out: Path) -> list[float]:
    """Return, for each of ``ROUNDS`` runs, the seconds that the whole ``jobsub`` process takes."""
    command = [
        str(Path(sys.executable).parent / "jobsub"),
        "--type",
        "uni",
        "-o",
        "/dev/null",
        "/bin/true",
    ]
    took = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        subprocess.run(command, cwd=out, check=True, capture_output=True)
        took.append(time.perf_counter() - start)
        time.sleep(0.05)
    return took


def drain(out: Path) -> float:
    """Return the jobs per second from the first submission to the last end."""

    def submit(number: int) -> int:
        with Client() as client:
            return max(
                client.submit("/bin/true", sizes=1, type="uni", chdir=str(out), stdout="/dev/null")
                for _ in range(number)
            )

    start = time.perf_counter()
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        last = max(pool.map(submit, [DRAIN // SUBMITTERS] * SUBMITTERS))
    with Client() as client:
        client.wait(last)
        while client.jobs():
            time.sleep(0.02)
    return DRAIN / (time.perf_counter() - start)


def main() -> int:
    """Measure on a cluster of 4 nodes with 2 processors each; return the exit code."""
    with cluster(4, 2, "--strategy", "fcfs") as (client, out):
        waits, processes = first_instruction(client, out), jobsub(out)
        rate = drain(out)
    print(f"acknowledgement -> first instruction, ms: {figures(waits)}")
    print(f"jobsub, whole process, ms:                {figures(processes)}")
    good = [
        verdict("first instruction p50", 1e3 * statistics.median(waits), 60, "ms"),
        verdict("jobsub p50", 1e3 * statistics.median(processes), 100, "ms"),
        verdict(f"drain of {DRAIN} x true", rate, 100, "jobs/s", at_least=True),
    ]
    return 0 if all(good) else 1


if __name__ == "__main__":
    raise SystemExit(main())
