"""Many runs in parallel, each in a new process, so that runs share nothing."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from typing import Any

from pliant.simulator.experiments.definitions import ExperimentError

#: Called after each run with the number of runs that are done.
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Task:
    """One run of the simulator."""

    spec: dict[str, Any]
    seed: int
    metrics: list[str]


def run_all(tasks: Sequence[Task], processes: int, progress: Progress) -> list[dict[str, float]]:
    """Run all tasks. Return the metrics of each, in the order of the tasks.

    Raises:
        ExperimentError: a run failed; the other runs are ended.
    """
    pool = _Pool()
    with ThreadPoolExecutor(max(1, processes)) as executor:
        futures = [executor.submit(pool.run, task) for task in tasks]
        try:
            _wait(futures, progress)
        except BaseException:
            pool.stop()
            raise
    return [future.result() for future in futures]


def _wait(futures: Sequence[Future[dict[str, float]]], progress: Progress) -> None:
    left = set(futures)
    while left:
        done, left = wait(left, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
        progress(len(futures) - len(left))


class _Pool:
    """The processes that are running."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(self, task: Task) -> dict[str, float]:
        """Run one task in a new process and wait for it."""
        if self._stopped:
            raise ExperimentError("stopped")
        # -P: modules and package metadata in the working directory (such as an old build's list of
        # strategies) must not be found instead of the installed ones.
        command = [sys.executable, "-P", "-m", "pliant.simulator.experiments.worker"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            self._running.add(process)
            out, err = process.communicate(json.dumps(asdict(task)))
            self._running.discard(process)
        if process.returncode != 0:
            raise ExperimentError(err.strip() or f"a run ended with {process.returncode}")
        measured: dict[str, float] = json.loads(out)
        return measured

    def stop(self) -> None:
        """End all processes and refuse further tasks."""
        self._stopped = True
        for process in list(self._running):
            process.kill()
