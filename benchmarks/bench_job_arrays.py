"""An array of ``true`` on Pliant, Slurm and HyperQueue, in turns on this machine.

Each has 4 nodes with 2 processors, all on this machine, and its usual settings. Output of the tasks
goes to /dev/null. In each round, every system gets one array and runs it to the end (drains it),
while the others are idle. The benchmark measures the time from the submission to its
acknowledgement, and the tasks per second until the last task has ended.

Slurm runs as root. The benchmark detects the end of its array, and of Pliant's, within 0.05 s.
HyperQueue runs within one process, and its client asks for the state once a second, so its figures
are up to 1 s too long.

Budget: Pliant drains an array at least as fast as Slurm.

``python benchmarks/bench_job_arrays.py [--install] [--hyperqueue PYTHON] [TASKS [ROUNDS]]``: with
``--install``, Slurm and munge are installed with apt-get if they are missing. ``--hyperqueue``
names an interpreter whose packages include hyperqueue (``pip install hyperqueue``), by default that
of the benchmark. A system that is not installed is left out, and the reason is printed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchkit import APPS, busy, cluster, verdict

from pliant.client.api import Client

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from benchkit.slurm_package import install, reason_to_skip

from slurmkit import Slurm

NODES, CPUS, POLL_S = 4, 2, 0.05
#: What each task runs; ``sbatch --wrap`` makes the same of ``true``.
COMMAND = ("/bin/sh", "-c", "true")
#: Drains one array; returns the seconds until it was acknowledged and until its last task ended.
Drain = Callable[[], tuple[float, float]]


def drain_by_command(
    words: list[str],
    is_idle: Callable[[], bool],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> tuple[float, float]:
    """Submit an array by a command, and wait until no task is left.

    Returns:
        The seconds until the command has ended, and until the last task has ended.
    """
    start = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True, env=env, cwd=cwd)
    acknowledged = time.perf_counter() - start
    while not is_idle():
        time.sleep(POLL_S)
    return acknowledged, time.perf_counter() - start


def pliant_drain(client: Client, out: Path, tasks: int) -> Drain:
    """Return a function that submits an array with ``jobsub`` and waits for its end."""
    jobsub = str(Path(sys.executable).parent / "jobsub")
    words = [jobsub, f"--array=1-{tasks}", "--type", "uni", "-o", "/dev/null", "--", *COMMAND]
    return lambda: drain_by_command(words, lambda: not client.jobs(), cwd=out)


def slurm_drain(slurm: Slurm, tasks: int) -> Drain:
    """Return a function that submits an array with ``sbatch`` and waits for its end."""
    words = ["sbatch", "--quiet", "--output=/dev/null", "--chdir=/tmp", f"--array=1-{tasks}"]
    return lambda: drain_by_command(
        [*words, "--wrap=true"], lambda: not slurm.call("squeue", "-h").strip(), env=slurm.env
    )


@contextmanager
def slurm_cluster(base: Path, tasks: int) -> Iterator[Drain | None]:
    """Run Slurm; yield a function that runs an array to its end, or None if not installed."""
    if reason := reason_to_skip():
        print(f"Slurm is left out: {reason}")
        yield None
        return
    slurm = Slurm(base / "slurm", "linuxproc", NODES, CPUS)
    try:
        slurm.up()
        yield slurm_drain(slurm, tasks)
    finally:
        slurm.down()


@contextmanager
def hyperqueue_cluster(base: Path, python: str, tasks: int) -> Iterator[Drain | None]:
    """Run HyperQueue; yield a function that runs an array to its end, or None if not installed."""
    folder = base / "hyperqueue"
    folder.mkdir()
    app = str(APPS / "hyperqueue_arrays.py")
    words = [python, app, str(folder), str(NODES), str(CPUS), str(tasks), *COMMAND]
    with (
        (base / "hyperqueue.log").open("w+") as log,
        subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if "up\n" not in iter(process.stdout.readline, ""):  # after a table about its server
                process.wait()
                log.seek(0)
                reason = log.read().strip().splitlines()[-1:]
                print(f"HyperQueue is left out: {' '.join(reason)}; name one with --hyperqueue")
                yield None
                return
            asked, answers = process.stdin, process.stdout

            def drain() -> tuple[float, float]:
                asked.write("drain\n")
                asked.flush()
                acknowledged, ended = answers.readline().split()
                return float(acknowledged), float(ended)

            yield drain
        finally:
            process.terminate()


def spread(values: list[float], form: str) -> str:
    """Return median, smallest and largest value as text; ``form`` is the format of each."""
    least, most = format(min(values), form), format(max(values), form)
    return f"{format(statistics.median(values), form)} ({least} - {most})"


def main(words: list[str]) -> int:
    """Measure Pliant, Slurm and HyperQueue in turns, and print one table; return the exit code."""
    parser = argparse.ArgumentParser(prog="bench_job_arrays.py")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--hyperqueue", default=sys.executable, metavar="PYTHON")
    parser.add_argument("tasks", nargs="?", type=int, default=1000)
    parser.add_argument("rounds", nargs="?", type=int, default=3)
    options = parser.parse_args(words)
    tasks = options.tasks
    if options.install:
        install()
    print(busy())
    with (
        cluster(NODES, CPUS, "--strategy", "fcfs") as (client, out),
        slurm_cluster(out.parent, tasks) as slurm,
        hyperqueue_cluster(out.parent, options.hyperqueue, tasks) as hyperqueue,
    ):
        found = {
            "Pliant": pliant_drain(client, out, tasks),
            "Slurm": slurm,
            "HyperQueue": hyperqueue,
        }
        drains = {name: drain for name, drain in found.items() if drain is not None}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in drains}
        for number in range(options.rounds):
            for name, drain in drains.items():
                times[name].append(drain())
            rates = (f"{name} {tasks / times[name][-1][1]:.1f}" for name in drains)
            print(f"round {number + 1}, tasks/s: {', '.join(rates)}; {busy()}", flush=True)
    print(f"array of {tasks} x true, medians of {options.rounds} rounds with the spread:")
    print("| | acknowledged after, ms | tasks/s |\n|---|---|---|")
    for name, both in times.items():
        acknowledged = spread([1e3 * first for first, _ in both], ".0f")
        print(f"| {name} | {acknowledged} | {spread([tasks / last for _, last in both], '.1f')} |")
    if "Slurm" not in times:
        return 0
    own, theirs = (statistics.median(last for _, last in times[n]) for n in ("Pliant", "Slurm"))
    return 0 if verdict("drain, ratio to Slurm", theirs / own, 1.0, "x", at_least=True) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
