"""Time for which an application stands still when it grows from 2 to 4 ranks, in several ways.

All ways do the same steps on the same 64 MiB of numbers. The time is measured from the end of the
last step at the old size to the beginning of the first step at the new size, as rank 0 records
them. Data are checked in every step.

- *pliant, resize*: ``jobctl resize`` of a running job, and the pause that the server reports.
- *pliant, suspend and resume*: the job is saved at a safe point, and resumed at once at the
  new size.
- *save and restart*: a plain mpi4py program writes its numbers (fsync), ends, and ``mpiexec``
  starts it again at the new size. There is no queue, and the file is still in the page cache, so
  this is the lowest cost of such a restart.
- *spawn and merge*: a plain mpi4py program calls MPI_Comm_spawn, merges and redistributes by
  MPI_Alltoallv. It runs once with MPICH's defaults, and once with MPIR_CVAR_ENABLE_HEAVY_YIELD, so
  that waiting parents leave the processors to their children.

Budget: the pause is at least 5 times smaller than that of each of the others.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from benchkit import APPS, cluster, figures, verdict

from pliant.client.api import Client
from pliant.client.client_errors import RequestError
from pliant.server.execution.start_orders import FLAT_COLLECTIVES

SMALL, LARGE, NUMBERS, ROUNDS, RATIO = 2, 4, 64 << 17, 7, 5.0
#: One host; collectives that are safe on merged communicators, as Pliant's jobs have them.
PLAIN = {"FI_TCP_IFACE": "lo", "FI_PROVIDER": "^sockets", **FLAT_COLLECTIVES}


def stalls(log: Path) -> list[float]:
    """Return the seconds of each stall in which the program grew, from its log of steps.

    A stall lasts from the end of the last step at the smaller size to the begin of the first one at
    the larger size.
    """
    lines = [line.split() for line in log.read_text().splitlines()]
    steps = [(float(begin), float(end), int(size)) for begin, end, size in lines]
    return [
        after[0] - before[1]
        for before, after in pairwise(steps)
        if (before[2], after[2]) == (SMALL, LARGE)
    ]


def until(done: Callable[[], bool], what: str) -> None:
    """Wait for a condition, with pauses so that the checks do not delay a suspension.

    If it does not become true within a minute, end with a message that names ``what``.
    """
    deadline = time.monotonic() + 60
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within a minute: {what}")
        time.sleep(0.01)


class Managed:
    """A job under Pliant, on two nodes of two processors, whose stalls are measured."""

    def __init__(self, client: Client, out: Path) -> None:
        self._client, self._log = client, out / "steps"
        program = [sys.executable, str(APPS / "stall_managed.py"), str(NUMBERS), str(self._log)]
        self._output = out / "log"
        self.job = client.submit(
            *program, sizes=f"{SMALL}-{LARGE}", chdir=str(out), stdout=str(self._output)
        )
        self.steps(LARGE)

    def steps(self, size: int) -> None:
        """Wait until the program has done several steps at this size."""
        before = self._count()
        until(lambda: self._at(size, before), f"steps at size {size}")

    def _count(self) -> int:
        return len(self._log.read_text().splitlines()) if self._log.exists() else 0

    def _at(self, size: int, before: int) -> bool:
        job = self._client.job(self.job)
        if job.final:
            raise SystemExit(f"{job.state}: {job.reason}\n{self._output.read_text()}")
        if self._count() < before + 10:
            return False
        last = self._log.read_text().splitlines()[-10:]
        return job.state == "RUNNING" and {line.split()[2] for line in last} == {str(size)}

    def resize(self, size: int) -> None:
        """Change the size of the job as an operator, and wait for steps at the new size."""
        until(lambda: self._accepted(self._client.resize, size), f"an offer of {size}")
        self.steps(size)

    def _accepted(self, ask: Callable[..., str], *arguments: int) -> bool:
        """Call ``ask`` with the job's number, and return whether the server accepts the request.

        A job that is just starting is not connected yet, so its requests are refused.
        """
        try:
            ask(self.job, *arguments)
        except RequestError:
            return False
        return True

    def suspend_and_resume(self) -> None:
        """Suspend the job and resume it at once; it then gets all processors."""
        self._client.resize(self.job, 0)
        until(lambda: self._accepted(self._client.suspend), "the order to be taken")
        until(lambda: self._client.job(self.job).state == "SUSPENDED", "the suspension")
        self._client.resume_job(self.job)
        self.steps(LARGE)

    def end(self) -> tuple[list[float], list[float]]:
        """End the job; return the seconds of its stalls, and of the pauses in the history."""
        events = self._client.history(self.job)
        self._client.cancel(self.job)
        self._client.wait(self.job)
        reported = [
            event.data["seconds"]["total"]
            for event in events
            if event.kind == "job.resized" and event.data["direction"] == "grow"
        ]
        return stalls(self._log), reported


def managed() -> tuple[list[float], list[float], list[float]]:
    """Measure a job under Pliant that is resized, then suspended and resumed.

    Returns:
        The seconds for which the job stood still in resizes, the pauses of these resizes that the
        server reported, and the seconds for which it stood still in suspensions.
    """
    with cluster(2, 2, "--strategy", "fcfs") as (client, out):
        job = Managed(client, out)
        for _ in range(ROUNDS):
            job.resize(SMALL)
            job.resize(LARGE)
            job.resize(SMALL)
            job.suspend_and_resume()
        found, reported = job.end()
    if len(found) != 2 * ROUNDS:
        raise SystemExit(f"{len(found)} stalls seen instead of {2 * ROUNDS}")
    return found[::2], reported, found[1::2]


def mpiexec(size: int, log: Path, *words: str, **settings: str) -> None:
    """Run `apps/stall_plain.py` under ``mpiexec``, and wait for its end.

    Args:
        size: the number of ranks.
        log: the log of the program's steps.
        words: further arguments of the program.
        settings: additional environment variables.
    """
    launcher = str(Path(sysconfig.get_path("scripts")) / "mpiexec")
    command = [launcher, "-n", str(size), sys.executable]
    program = [str(APPS / "stall_plain.py"), str(NUMBERS), str(log), *words]
    done = subprocess.run(
        [*command, *program],
        env={**os.environ, **PLAIN, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}: {done.stderr}")


def restarted(out: Path) -> list[float]:
    """Return the seconds for which a plain program stands still when it is saved and restarted."""
    saved = out / "saved"
    for _ in range(ROUNDS):
        mpiexec(SMALL, out / "restarts", "save", str(saved))
        mpiexec(LARGE, out / "restarts", "load", str(saved))
        saved.unlink()
    return stalls(out / "restarts")


def spawned(out: Path, **settings: str) -> list[float]:
    """Return the seconds for which a plain program stands still when it grows by spawning."""
    log = out / f"spawns-{len(settings)}"
    for _ in range(ROUNDS):
        mpiexec(SMALL, log, "spawn", str(LARGE - SMALL), **settings)
    return stalls(log)


def table(rows: dict[str, Sequence[float]], ours: float) -> None:
    """Print median and spread of each way to grow, and the ratio of the median to ``ours``.

    ``ours`` is the median of a resize by Pliant, in seconds.
    """
    for name, samples in rows.items():
        ratio = statistics.median(samples) / ours
        print(f"{name:28} ms: {figures(samples)}  {ratio:6.1f} x")


def main() -> int:
    """Measure how long a job stands still in each way to grow; return the exit code."""
    resized, reported, suspended = managed()
    with tempfile.TemporaryDirectory(prefix="pliant-bench-") as folder:
        out = Path(folder)
        others = {
            "pliant, suspend and resume": suspended,
            "save and restart": restarted(out),
            "spawn and merge": spawned(out),
            "spawn and merge, heavy yield": spawned(out, MPIR_CVAR_ENABLE_HEAVY_YIELD="1"),
        }
    ours = statistics.median(resized)
    print(f"an application with {NUMBERS >> 17} MiB stands still, {SMALL} -> {LARGE} ranks")
    table({"pliant, resize": resized, "  the pause as reported": reported, **others}, ours)
    good = [
        verdict(f"{name} / resize", statistics.median(them) / ours, RATIO, "x", at_least=True)
        for name, them in others.items()
    ]
    return 0 if all(good) else 1


if __name__ == "__main__":
    raise SystemExit(main())
