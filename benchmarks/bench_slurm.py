"""Pliant and Slurm in turns on this machine: starts, a drain, and jobs after a crash.

Both have 4 nodes with 2 processors each, all on this machine. Slurm runs with its usual settings,
as root. The benchmark measures:

- from the call of ``sbatch`` or ``jobsub`` to the first instruction of the job, on an idle cluster
- jobs per second while 4 submitters submit jobs that run ``true``, until the last one has ended (a
  drain). Slurm gets them from ``sbatch``. Pliant gets them from ``jobsub``, which is Python, and
  once more from 4 Python clients whose connections stay open
- acknowledged jobs that are missing when the server was killed (SIGKILL) right after a burst of
  submissions and started again

Budgets: Pliant starts jobs and drains them (open clients) at least as fast as Slurm, and misses no
acknowledged job. `bench_job_arrays.py` compares arrays.

``python benchmarks/bench_slurm.py [--install] [JOBS]``: with ``--install``, Slurm and munge are
installed with apt-get if they are missing. Without them the benchmark is skipped.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from benchkit import answering, busy, cluster, figures, verdict

from pliant.client.api import Client
from pliant.client.client_errors import ClientError

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from benchkit.slurm_package import install, reason_to_skip

from slurmkit import Slurm

ROUNDS, DRAIN, BURST, SUBMITTERS = 12, 1000, 200, 4
NODES, CPUS = 4, 2
#: Submits a command, and returns when it is acknowledged.
Submit = Callable[[str], None]


def wait_for_file(path: Path, within_s: float = 120.0) -> str:
    """Return the content of a file as soon as it has a line."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with suppress(OSError):
            if (text := path.read_text()).endswith("\n"):
                return text
        time.sleep(0.002)
    raise SystemExit(f"{path} was not written within {within_s:g} s")


def first_instructions(submit: Submit, out: Path) -> list[float]:
    """Submit jobs one at a time; return the seconds from each submission to its first command."""
    waits = []
    for number in range(ROUNDS):
        target = out / f"now-{number}"
        target.unlink(missing_ok=True)
        submitted = time.time()
        submit(f"date +%s.%N > {target}")
        waits.append(float(wait_for_file(target)) - submitted)
        time.sleep(0.5)
    return waits


def drain(submit: Submit, is_idle: Callable[[], bool], jobs: int) -> float:
    """Submit jobs; return the jobs per second from the first submission to the last end."""
    start = time.perf_counter()
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        for future in [pool.submit(submit, "true") for _ in range(jobs)]:
            future.result()
    while not is_idle():
        time.sleep(0.05)
    return jobs / (time.perf_counter() - start)


# ------------------------------------------------------------------ Slurm


def slurm_submit(slurm: Slurm) -> Submit:
    """Return a function that submits a shell command with ``sbatch``."""

    def submit(command: str) -> None:
        words = ["sbatch", "--quiet", "--output=/dev/null", "--chdir=/tmp", f"--wrap={command}"]
        subprocess.run(words, env=slurm.env, check=True, capture_output=True)

    return submit


def slurm_missing_after_kill(slurm: Slurm) -> int:
    """Return how many acknowledged jobs slurmctld does not know after a crash."""
    words = ["sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true"]

    def submit(_: int) -> str:
        done = subprocess.run(words, env=slurm.env, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    with ThreadPoolExecutor(SUBMITTERS) as pool:
        acknowledged = set(pool.map(submit, range(BURST)))
    slurm.kill_controller()
    slurm.start_controller()
    known: set[str] = set()
    deadline = time.monotonic() + 60.0
    while not slurm.call("sinfo", "-h").strip() and time.monotonic() < deadline:
        time.sleep(0.2)
    known = set(slurm.call("squeue", "-h", "-o", "%i", "--states=all").split())
    return len(acknowledged - known)


# ------------------------------------------------------------------ Pliant


def jobsub(out: Path) -> Submit:
    """Return a function that submits a shell command with ``jobsub``."""
    program = str(Path(sys.executable).parent / "jobsub")

    def submit(command: str) -> None:
        words = [program, "--type", "uni", "-o", "/dev/null", "--", "/bin/sh", "-c", command]
        subprocess.run(words, cwd=out, check=True, capture_output=True)

    return submit


def pliant_drain(out: Path, jobs: int) -> float:
    """Submit jobs from several clients, whose connections stay open.

    Returns:
        The jobs per second from the first submission to the last end, as `drain` does.
    """

    def submit(count: int) -> None:
        with Client() as client:
            for _ in range(count):
                words = ("/bin/sh", "-c", "true")
                client.submit(*words, sizes=1, type="uni", chdir=str(out), stdout="/dev/null")

    start = time.perf_counter()
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        list(pool.map(submit, [jobs // SUBMITTERS] * SUBMITTERS))
    with Client() as client:
        while client.jobs():
            time.sleep(0.02)
    return jobs / (time.perf_counter() - start)


def pliant_missing_after_kill(client: Client, out: Path) -> int:
    """Return how many acknowledged jobs the server does not know after a crash."""

    def submit(_: int) -> int:
        with Client() as own:
            return own.submit("/bin/true", sizes=1, type="uni", chdir=str(out), hold=True)

    with ThreadPoolExecutor(SUBMITTERS) as pool:
        acknowledged = set(pool.map(submit, range(BURST)))
    pid = int((Path(os.environ["PLIANT_RUN_DIR"]) / "server.pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    client.close()
    pliant = str(Path(sys.executable).parent / "pliant")
    subprocess.run([pliant, "up", "--detach"], check=True, capture_output=True)
    answering(client)
    known = set()
    for job in acknowledged:
        with suppress(ClientError):
            known.add(client.job(job).id)
    return len(acknowledged - known)


def main(words: list[str]) -> int:
    """Measure Pliant and Slurm, and print one table; return the exit code."""
    if "--install" in words:
        install()
    if reason := reason_to_skip():
        print(f"skipped: {reason}")
        return 0
    jobs = int(next((word for word in words if word.isdecimal()), DRAIN))
    print(busy())
    with cluster(NODES, CPUS, "--strategy", "fcfs") as (client, out):
        slurm = Slurm(out.parent / "slurm", "linuxproc", NODES, CPUS)
        try:
            slurm.up()
            theirs = first_instructions(slurm_submit(slurm), out)
            own = first_instructions(jobsub(out), out)
            their_rate = drain(
                slurm_submit(slurm), lambda: not slurm.call("squeue", "-h").strip(), jobs
            )
            command_rate = drain(jobsub(out), lambda: not client.jobs(), jobs)
            own_rate = pliant_drain(out, jobs)
            their_missing = slurm_missing_after_kill(slurm)
            own_missing = pliant_missing_after_kill(client, out)
        finally:
            slurm.down()
    print(busy())
    print(f"submission -> first instruction, ms, Slurm:  {figures(theirs)}")
    print(f"submission -> first instruction, ms, Pliant: {figures(own)}")
    print(f"drain of {jobs} x true, jobs/s: Slurm {their_rate:.1f}, Pliant {command_rate:.1f}")
    print(f"the same from open clients of Pliant: {own_rate:.1f}")
    print(f"missing of {BURST} acknowledged jobs: Slurm {their_missing}, Pliant {own_missing}")
    good = [
        verdict(
            "start, ratio to Slurm", statistics.median(own) / statistics.median(theirs), 1.0, "x"
        ),
        verdict("drain, ratio to Slurm", own_rate / their_rate, 1.0, "x", at_least=True),
        verdict("missing jobs of Pliant", own_missing, 0, "jobs"),
    ]
    return 0 if all(good) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
