"""Many runs in parallel, each in a new process, so that runs share nothing."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from typing import Any

from pliant.simulator.experiments.definition.definitions import ExperimentError

#: Called when a task is done, in the thread that called ``run_all``.
Done = Callable[["Task", dict[str, float]], None]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One run of the simulator."""

    spec: dict[str, Any]
    seed: int
    #: The experiment and the row, for messages.
    label: str = ""


def run_all(tasks: Sequence[Task], processes: int, done: Done) -> None:
    """Run all tasks.

    Args:
        tasks: the tasks, which are started in this order.
        processes: the number of tasks that run at once.
        done: is called after each task, in the order in which they end.

    Raises:
        ExperimentError: a run failed; the other runs are ended.
    """
    pool = _Pool()
    with ThreadPoolExecutor(max(1, processes)) as executor:
        tasks_of = {executor.submit(pool.run, task): task for task in tasks}
        try:
            left = set(tasks_of)
            while left:
                ended, left = wait(left, return_when=FIRST_COMPLETED)
                for future in ended:
                    done(tasks_of[future], future.result())
        except BaseException:
            pool.stop()
            raise


class _Pool:
    """The processes that run tasks at present."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(self, task: Task) -> dict[str, float]:
        """Run one task in a new process, wait for it, and return its metrics."""
        if self._stopped:
            raise ExperimentError("stopped")
        # -P: modules and package metadata in the working directory (such as an old build's list of
        # strategies) must not be found instead of the installed ones.
        command = [sys.executable, "-P", "-m", "pliant.simulator.experiments.running.worker"]
        pipe = subprocess.PIPE
        # A group of its own: an interrupt at the terminal reaches this process only, which then
        # ends the runs. Otherwise their exits would be taken for failures.
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, process_group=0
        ) as process:
            self._running.add(process)
            out, err = process.communicate(json.dumps(asdict(task)))
            self._running.discard(process)
        if process.returncode != 0:
            cause = err.strip() or f"a run ended with {process.returncode}"
            raise ExperimentError(f"{task.label}: {cause}" if task.label else cause)
        measured: dict[str, float] = json.loads(out)
        return measured

    def stop(self) -> None:
        """End all processes and refuse further tasks."""
        self._stopped = True
        for process in list(self._running):
            process.kill()
