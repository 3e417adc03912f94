"""The rows of the experiments with real jobs: those of the simulations, with the same jobs.

A row is one run with a workload and a strategy, whose metrics become a row of a table.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pliant.simulator.experiments.definition.definitions import ExperimentError, name_of
from pliant.simulator.experiments.definition.reading import find_experiment
from pliant.simulator.experiments.running.tasks import run_task, workload_of
from pliant.simulator.inputs.workload import SimJob

#: The experiments that are run if none is named, with their scales. Kumar's jobs are short, and the
#: start of their processes, which takes seconds, must be short compared with them.
SCALES = {"ghafoor-4.1": 0.1, "kumar-4.4": 0.5}
OTHER_SCALE = 0.1
#: The processors of the cluster: 4 nodes with 4 slots.
PROCESSORS = 16
#: Results of another form are not used.
FORM = 1


@dataclass(frozen=True)
class Row:
    """One run of a workload under a strategy, with the values that the paper prints for it.

    Its metrics become a row of a table.
    """

    experiment: str
    setup: Mapping[str, Any]
    spec: Mapping[str, Any]
    printed: Mapping[str, float]
    seed: int
    #: Wall-clock seconds for each second of the model.
    scale: float
    #: The names of metrics in tables, with their names in results.
    metrics: Mapping[str, str]

    @property
    def label(self) -> str:
        return f"{self.experiment}: {name_of(self.setup)}, seed {self.seed}"

    @property
    def file_name(self) -> str:
        """Return the name of the row's result file, which has a hash of the row's settings."""
        words = slug(f"{name_of(self.setup)} {self.seed}")
        return f"{self.experiment}/{words}-{self.fingerprint[:8]}.json"

    @property
    def fingerprint(self) -> str:
        text = json.dumps([FORM, self.spec, self.seed, self.scale], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def jobs(self) -> list[SimJob]:
        """Return the jobs of this row's workload, with times in simulated seconds.

        A simulated second takes ``scale`` seconds in the real run.
        """
        return list(workload_of(self.spec, self.seed).jobs)

    @property
    def strategy(self) -> str:
        return str(self.spec.get("strategy", "equipartition"))


def simulate_without_costs(spec: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Simulate a run in which starts and resizes take no time; return its metrics.

    Args:
        spec: the workload and the strategy, as in the definition of the experiment.
        seed: the seed of the workload.
    """
    without = {key: value for key, value in spec.items() if key != "settings"}
    return run_task({**without, "processors": PROCESSORS}, seed)


def slug(text: str) -> str:
    """Convert a text so that it can be a part of a file name."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def select_rows(
    names: Sequence[str],
    where: Mapping[str, Sequence[str]],
    *,
    jobs: int | None,
    seed: int,
    scale: float | None,
) -> list[Row]:
    """Return the rows to run (a workload and a strategy each), without repetitions.

    Of the rows of an experiment with the same strategy and the same jobs, only the first is kept.

    Args:
        names: names of experiments, or paths of definitions.
        where: axes with values, as texts; only rows with all of these axes are returned.
        jobs: the number of jobs of each row; None for that of the definition.
        seed: the seed of the workloads.
        scale: wall-clock seconds for each simulated second; None for that of the experiment.

    Raises:
        ExperimentError: an experiment, an axis or a value does not exist, or the jobs do not fit
            the cluster.
    """
    rows: list[Row] = []
    known: dict[str, set[str]] = {}
    seen = set()
    for row in _all_rows(names, jobs, seed, scale):
        for axis, value in row.setup.items():
            known.setdefault(axis, set()).add(str(value))
        if any(str(row.setup.get(axis)) not in values for axis, values in where.items()):
            continue
        key = repr((row.experiment, row.strategy, row.jobs()))
        if key not in seen:
            seen.add(key)
            rows.append(row)
    _check_where(where, known)
    if not rows:
        raise ExperimentError(f"--where {' --where '.join(where)}: no row has all of these axes")
    for row in rows:
        _check(row)
    return rows


def _all_rows(
    names: Sequence[str], jobs: int | None, seed: int, scale: float | None
) -> Iterator[Row]:
    for name in names:
        experiment = find_experiment(name)
        used = SCALES.get(experiment.name, OTHER_SCALE) if scale is None else scale
        sources = {metric.name: metric.source for metric in experiment.metrics}
        for cell in experiment.cells:
            if not cell.is_reference:
                spec = {**cell.spec, **({} if jobs is None else {"jobs": jobs})}
                row = Row(experiment.name, cell.setup, spec, cell.printed, seed, used, sources)
                if "multicluster" in spec or "time_shared" in spec:
                    raise ExperimentError(
                        f"{name}: experiments with multicluster or time_shared cannot be run with "
                        "real jobs"
                    )
                yield row


def _check_where(where: Mapping[str, Sequence[str]], known: Mapping[str, set[str]]) -> None:
    for axis, values in where.items():
        if axis not in known:
            raise ExperimentError(f"--where {axis}: no such axis; there are: {', '.join(known)}")
        for value in values:
            if value not in known[axis]:
                there = ", ".join(sorted(known[axis]))
                raise ExperimentError(f"--where {axis}={value}: no such row; there are: {there}")


def _check(row: Row) -> None:
    for job in row.jobs():
        if job.sizes.min > PROCESSORS:
            raise ExperimentError(
                f"{row.label}: job {job.id} needs {job.sizes.min} processors, and the cluster has "
                f"{PROCESSORS}"
            )
