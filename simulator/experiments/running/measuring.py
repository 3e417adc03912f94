"""Run the cells of experiments that are not in the results yet, on all cores."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pliant.simulator.experiments.definition.definitions import Cell, Experiment
from pliant.simulator.experiments.running.pool import Task, run_all
from pliant.simulator.experiments.running.results_store import ResultsStore
from pliant.simulator.inputs import models

#: The metrics of the runs of each cell, one mapping per seed, by the place of the cell.
Measured = list[list[Mapping[str, float]]]
#: Called with the number of runs that are done, and the number of all runs.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Scale:
    """The number of seeds and jobs to run, if other than the definition says."""

    #: The number of seeds 1, 2, ... of each cell; None for that of the definition.
    seeds: int | None = None
    #: The jobs of each workload; None for those of the definition.
    jobs: int | None = None

    def seeds_of(self, cell: Cell) -> int:
        """Return the number of runs of a cell, each with another seed."""
        return self.seeds or cell.seeds

    def spec_of(self, cell: Cell) -> dict[str, Any]:
        """Return the definition of a cell's run at this scale."""
        if self.jobs is None or "job_list" in cell.spec:
            return dict(cell.spec)
        return {**cell.spec, "jobs": self.jobs}

    def label_of(self, cell: Cell) -> str:
        """Return the name under which the results of a cell are stored."""
        return cell.label if self.jobs is None else f"{cell.label}, jobs {self.jobs}"

    def share_of_jobs(self, spec: Mapping[str, Any]) -> float:
        """Return the share of the definition's jobs that is simulated; 1 if it states none."""
        if self.jobs is None or "job_list" in spec:
            return 1.0
        named = spec.get("jobs") or spec.get("parameters", {}).get("jobs")
        if named is None and models.is_model(spec.get("workload", "")):
            named = models.parameters(spec["workload"]).get("jobs")
        return self.jobs / named if isinstance(named, int) and named else 1.0


FULL_SIZE = Scale()


def measure(
    experiments: Sequence[Experiment],
    store: ResultsStore,
    *,
    scale: Scale = FULL_SIZE,
    processes: int = 0,
    progress: Progress | None = None,
) -> list[Measured]:
    """Run the simulations that are missing in the store, and return the metrics of all.

    Args:
        experiments: the experiments, which are run in this order.
        store: has earlier results, and gets each new one as soon as its run has ended.
        scale: the size of the experiments.
        processes: the number of runs at once; 0 for the number of processors.
        progress: is called at the beginning and after each run; None for no calls.

    Raises:
        ExperimentError: a run failed, or a result cannot be stored.
    """
    cells = list(_cells(experiments))
    found = {
        id(cell): store.read(experiment.name, scale.label_of(cell), scale.spec_of(cell))
        for experiment, cell in cells
    }
    tasks, owners = [], {}
    total = 0
    for experiment, cell in cells:
        for seed in range(1, scale.seeds_of(cell) + 1):
            total += 1
            if seed not in found[id(cell)]:
                label = f"{experiment.name}, {scale.label_of(cell)}"
                task = Task(scale.spec_of(cell), seed, label)
                owners[id(task)] = experiment, cell
                tasks.append(task)
    done = total - len(tasks)

    def store_result(task: Task, metrics: dict[str, float]) -> None:
        nonlocal done
        experiment, cell = owners[id(task)]
        store.add(experiment.name, scale.label_of(cell), task.spec, task.seed, metrics)
        found[id(cell)][task.seed] = metrics
        done += 1
        if progress is not None:
            progress(done, total)

    if progress is not None:
        progress(done, total)
    if tasks:
        store.prepare()
        run_all(tasks, processes or os.cpu_count() or 1, store_result)
    return [
        [
            [found[id(cell)][seed] for seed in range(1, scale.seeds_of(cell) + 1)]
            for cell in experiment.cells
        ]
        for experiment in experiments
    ]


def obsolete_results(
    experiments: Sequence[Experiment], store: ResultsStore, scale: Scale
) -> list[str]:
    """Return descriptions of stored results that belong to other definitions or other code."""
    return [
        text
        for experiment, cell in _cells(experiments)
        for text in store.others(experiment.name, scale.label_of(cell), scale.spec_of(cell))
    ]


def _cells(experiments: Sequence[Experiment]) -> Iterator[tuple[Experiment, Cell]]:
    for experiment in experiments:
        for cell in experiment.cells:
            yield experiment, cell


class ProgressLine:
    """Reports progress on stderr: one line on a terminal, otherwise a line at every tenth."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begin: tuple[float, int] | None = None
        self._is_terminal = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        """Report that some of all runs are done."""
        if self._begin is None:
            self._begin = (self._clock(), done)
            if done:
                print(f"{done} of {total} runs are done already", file=sys.stderr, flush=True)
            return
        text = f"{done} of {total} runs{self._left(done, total)}"
        if self._is_terminal:
            end = "\n" if done == total else ""
            print(f"\r\x1b[K{text}", end=end, file=sys.stderr, flush=True)
        elif done * 10 // total > (done - 1) * 10 // total:
            print(text, file=sys.stderr, flush=True)

    def _left(self, done: int, total: int) -> str:
        """Return the estimated remaining time as text, from the mean of the runs so far.

        The text is empty before the first run has ended, and at the end.
        """
        assert self._begin is not None
        since, before = self._begin
        if done in (before, total):
            return ""
        seconds = (self._clock() - since) / (done - before) * (total - done)
        return f", {duration(seconds)} left"


def duration(seconds: float) -> str:
    """Return a time as a text such as ``3 min 20 s``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
