"""Run many simulations in parallel, each in its own process, so that runs share no state."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from pliant.simulator.experiments.definition.definitions import ExperimentError

#: Called when a task is done, in the thread that called ``run_all``.
Done = Callable[["Task", dict[str, float]], None]
_Worker = subprocess.Popen[str]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One run of the simulator that a worker process executes."""

    spec: dict[str, Any]
    seed: int
    #: The experiment and the row, for messages.
    label: str = ""


def run_all(tasks: Iterable[Task], processes: int, done: Done) -> None:
    """Run all tasks.

    Args:
        tasks: the tasks, which are started in this order. The next one is taken when it can start.
        processes: the number of tasks that run at once.
        done: is called with each task that has ended and its metrics, in the order of their ends.

    Raises:
        ExperimentError: a run failed; the other runs are ended.
    """
    limit = max(1, processes)
    workers: list[_Worker] = []
    idle: list[_Worker] = []
    running: dict[Future[dict[str, float]], tuple[_Worker, Task]] = {}
    executor = ThreadPoolExecutor(limit)
    upcoming = iter(tasks)
    try:
        while True:
            while len(running) < limit and (task := next(upcoming, None)) is not None:
                if not idle:
                    idle.append(_start())
                    workers.append(idle[-1])
                worker = idle.pop()
                running[executor.submit(_answer, worker, task)] = worker, task
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                worker, task = running.pop(future)
                idle.append(worker)
                done(task, future.result())
    finally:
        # After a failure or an interrupt, this also ends the runs in progress.
        for worker in workers:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
        executor.shutdown(cancel_futures=True)
        for worker in workers:
            worker.communicate()


def _start() -> _Worker:
    # -P: modules and package metadata in the working directory (such as an old build's list of
    # strategies) must not be found instead of the installed ones.
    command = [sys.executable, "-P", "-m", "pliant.simulator.experiments.running.worker"]
    pipe = subprocess.PIPE
    # A group of its own: an interrupt at the terminal reaches this process only, which then ends
    # the runs. Otherwise their exits would be taken for failures.
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, process_group=0)


def _answer(worker: _Worker, task: Task) -> dict[str, float]:
    """Let a worker run a task, wait for its end, and return the metrics."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        print(json.dumps(asdict(task)), file=worker.stdin, flush=True)
        line = worker.stdout.readline()
    except BrokenPipeError:
        line = ""
    found: dict[str, Any] = (
        json.loads(line) if line else {"error": f"a worker ended with {worker.wait()}"}
    )
    if "error" in found:
        raise ExperimentError(f"{task.label}: {found['error']}" if task.label else found["error"])
    return dict(found["metrics"])
