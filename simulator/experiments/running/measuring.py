"""Run the cells of experiments that are not in the results yet, on all cores."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from pliant.simulator.experiments.definition.definitions import Cell, Experiment
from pliant.simulator.experiments.running.pool import Task, run_all
from pliant.simulator.experiments.running.results_store import ResultsStore, StoredRun
from pliant.simulator.inputs import models

#: The metrics of the runs of each cell, by the place of the cell: one mapping for each of the
#: seeds 1, 2, ... up to the first one that is missing.
Measured = list[list[Mapping[str, float]]]
#: Called with the number of runs that are done, and the number of all runs.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Scale:
    """The numbers of seeds and jobs to simulate instead of those in the definition."""

    #: The number of seeds 1, 2, ... of each cell; None for that of the definition.
    seeds: int | None = None
    #: The jobs of each workload; None for those of the definition.
    jobs: int | None = None

    def seeds_of(self, cell: Cell) -> int:
        """Return the number of runs of a cell, each with another seed.

        A cell is one combination of the experiment's parameters.
        """
        return self.seeds or cell.seeds

    def spec_of(self, cell: Cell) -> dict[str, Any]:
        """Return the definition of a cell's run, with the number of jobs of this scale.

        A cell is one combination of the experiment's parameters.
        """
        if self.jobs is None or "job_list" in cell.spec:
            return dict(cell.spec)
        return {**cell.spec, "jobs": self.jobs}

    def label_of(self, cell: Cell) -> str:
        """Return the name under which the results of a cell are stored.

        A cell is one combination of the experiment's parameters.
        """
        return cell.label if self.jobs is None else f"{cell.label}, jobs {self.jobs}"

    def share_of_jobs(self, spec: Mapping[str, Any]) -> float:
        """Return which fraction of the jobs in the definition is simulated, from 0 to 1.

        It is 1 if the definition lists its jobs or does not state their number.
        """
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
    deadline: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Measured]:
    """Run the simulations that are missing in the store, and return the metrics of all.

    Each combination of parameters (a cell) is first run with its first seed, then each with its
    second one, and so on. If the deadline allows only a part of the runs, all experiments thus have
    about the same number of seeds.

    Args:
        experiments: the experiments.
        store: has earlier results, and gets each new one as soon as its run has ended.
        scale: the size of the experiments.
        processes: the number of runs at once; 0 for the number of processors.
        progress: is called at the beginning and after each run; None for no calls.
        deadline: the time of the clock at which all runs should have ended. Runs that would take
            longer are not started. None to do all runs.
        clock: returns the present time in seconds.

    Raises:
        ExperimentError: a run failed, or a result cannot be stored.
    """
    cells = list(_cells(experiments))
    found = {
        id(cell): store.read(experiment.name, scale.label_of(cell), scale.spec_of(cell))
        for experiment, cell in cells
    }
    durations = _Durations()
    for experiment, cell in cells:
        for _, run in sorted(found[id(cell)].items()):
            durations.add(experiment, cell, run.seconds)
    total = sum(scale.seeds_of(cell) for _, cell in cells)
    missing = [
        (experiment, cell, seed)
        for seed, experiment, cell in _by_seed(cells, scale)
        if seed not in found[id(cell)]
    ]
    done = total - len(missing)
    started: dict[Task, tuple[Experiment, Cell, float]] = {}

    def tasks_in_time() -> Iterator[Task]:
        for experiment, cell, seed in missing:
            now = clock()
            if deadline is None or now + durations.expected(experiment, cell) < deadline:
                label = f"{experiment.name}, {scale.label_of(cell)}"
                task = Task(scale.spec_of(cell), seed, label)
                started[task] = experiment, cell, now
                yield task

    def store_result(task: Task, metrics: dict[str, float]) -> None:
        nonlocal done
        experiment, cell, since = started.pop(task)
        run = StoredRun(metrics, round(clock() - since, 3))
        store.add(experiment.name, scale.label_of(cell), task.spec, task.seed, run)
        found[id(cell)][task.seed] = run
        durations.add(experiment, cell, run.seconds)
        done += 1
        if progress is not None:
            progress(done, total)

    if progress is not None:
        progress(done, total)
    if missing:
        store.prepare()
        run_all(tasks_in_time(), processes or os.cpu_count() or 1, store_result)
    return [
        [_first_seeds(found[id(cell)], scale.seeds_of(cell)) for cell in experiment.cells]
        for experiment in experiments
    ]


def _by_seed(
    cells: Sequence[tuple[Experiment, Cell]], scale: Scale
) -> Iterator[tuple[int, Experiment, Cell]]:
    """Yield all runs as (seed, experiment, cell): the first seed of each cell, then the second."""
    most = max((scale.seeds_of(cell) for _, cell in cells), default=0)
    for seed in range(1, most + 1):
        for experiment, cell in cells:
            if seed <= scale.seeds_of(cell):
                yield seed, experiment, cell


def _first_seeds(found: Mapping[int, StoredRun], seeds: int) -> list[Mapping[str, float]]:
    """Return the metrics of the seeds 1, 2, ... up to the first one that is missing."""
    return [found[seed].metrics for seed in takewhile(found.__contains__, range(1, seeds + 1))]


class _Durations:
    """The durations of finished runs, to estimate whether another run ends before the deadline."""

    def __init__(self) -> None:
        self._of_cells: dict[int, float] = {}
        self._longest: dict[str, float] = {}

    def add(self, experiment: Experiment, cell: Cell, seconds: float | None) -> None:
        """Record the duration of a run in seconds; ignore None, an unknown duration."""
        if seconds is not None:
            self._of_cells[id(cell)] = seconds
            longest = self._longest.get(experiment.name, 0.0)
            self._longest[experiment.name] = max(longest, seconds)

    def expected(self, experiment: Experiment, cell: Cell) -> float:
        """Return the duration in seconds of the last run of a cell, one combination of parameters.

        If the cell has not been run, return that of the longest run of its experiment, or 0.
        """
        return self._of_cells.get(id(cell), self._longest.get(experiment.name, 0.0))


def obsolete_results(
    experiments: Sequence[Experiment], store: ResultsStore, scale: Scale
) -> list[str]:
    """Return descriptions of stored results that other definitions or older code have produced."""
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
    """Reports progress on stderr.

    On a terminal one line is updated after each run; otherwise a line is printed after each tenth
    of the runs.
    """

    def __init__(
        self, deadline: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._deadline = deadline
        self._clock = clock
        self._begin: tuple[float, int] | None = None
        self._is_terminal = sys.stderr.isatty()
        self._last = (0, 0)

    def __call__(self, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` runs have ended."""
        self._last = done, total
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

    def end(self) -> None:
        """If runs are missing at the end, print how many are done, and how to continue."""
        done, total = self._last
        if done < total:
            start = "\r\x1b[K" if self._is_terminal else ""
            text = f"{done} of {total} runs are done; the same command continues with the others"
            print(f"{start}{text}", file=sys.stderr, flush=True)

    def _left(self, done: int, total: int) -> str:
        """Return the estimated remaining time as text, from the mean of the runs so far.

        At most, it is the time until the deadline. The text is empty before the first run has
        ended, and at the end.
        """
        assert self._begin is not None
        since, before = self._begin
        if done in (before, total):
            return ""
        now = self._clock()
        seconds = (now - since) / (done - before) * (total - done)
        if self._deadline is not None:
            seconds = min(seconds, max(0.0, self._deadline - now))
        return f", {duration(seconds)} left"


def duration(seconds: float) -> str:
    """Return a time as a text such as ``3 min 20 s``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
