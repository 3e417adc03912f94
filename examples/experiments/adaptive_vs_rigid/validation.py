"""Simulate recorded real runs, and compare the results job by job (Ghafoor 2007, chapter 5).

The simulator gets the real times of submission and the costs that were measured in the run: for
each job the start and the end of its processes, for each malleable job its negotiations and the
pauses of its resizes. Costs of jobs that were not resized are the means of the run.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pliant.examples.experiments.adaptive_vs_rigid.experiment_rows import simulate_without_costs
from pliant.examples.experiments.adaptive_vs_rigid.recording import Tree
from pliant.simulator.experiments.reporting.real_runs import RealRun
from pliant.simulator.experiments.running.tasks import workload_of
from pliant.simulator.inputs.settings import Settings
from pliant.simulator.inputs.workload import SimJob
from pliant.simulator.run.result import JobRecord, Result
from pliant.simulator.run.simulate import simulate

#: Distances of times below this many seconds are relative to it.
_SHORTEST_S = 1.0


@dataclass(frozen=True)
class Distance:
    """How far the simulated times of one job are from the real ones, which are in seconds."""

    job: int
    real_start_s: float
    start_s: float
    real_end_s: float
    end_s: float
    real_turnaround_s: float

    @property
    def of_start(self) -> float:
        """Return the difference of the start times, divided by the real one (Ghafoor's d_e)."""
        return abs(self.start_s - self.real_start_s) / max(self.real_start_s, _SHORTEST_S)

    @property
    def of_end(self) -> float:
        """Return the difference of the completion times, divided by the real completion time."""
        return abs(self.end_s - self.real_end_s) / max(self.real_end_s, _SHORTEST_S)

    @property
    def of_turnaround(self) -> float:
        """Return the difference of the completion times, divided by the real turnaround time."""
        return abs(self.end_s - self.real_end_s) / max(self.real_turnaround_s, _SHORTEST_S)


@dataclass(frozen=True)
class Validation:
    """The comparison of one real run with its simulation."""

    label: str
    experiment: str
    setup: Mapping[str, Any]
    #: Means that were measured in the real run, in wall-clock seconds.
    costs: Mapping[str, float]
    distances: Sequence[Distance]
    #: Real and simulated values, with times in seconds of the model.
    metrics: Mapping[str, tuple[float, float]]
    #: The run in the form of the report of all experiments.
    real_run: RealRun

    def summary(self) -> dict[str, float]:
        """Return how far the simulation is from the real run, as relative numbers by name.

        These are the mean and the deviation of the distances of all jobs' start, end and turnaround
        times, and the relative error of each metric.
        """
        found: dict[str, float] = {}
        for name in ("start", "end", "turnaround"):
            values = [getattr(each, f"of_{name}") for each in self.distances]
            found[f"{name}_mean"] = statistics.fmean(values)
            found[f"{name}_deviation"] = statistics.pstdev(values)
        for name, (real, simulated) in self.metrics.items():
            found[f"{name}_difference"] = (simulated - real) / real if real else 0.0
        return found


def validate(result: Mapping[str, Any]) -> Validation:
    """Simulate a recorded run with its measured costs, and return the comparison."""
    row, scale, records = result["row"], result["scale"], result["jobs"]
    begin = min(job["submit_s"] for job in records)
    costs = _mean_costs(records)
    planned = {job.id: job for job in workload_of(row["spec"], row["seed"]).jobs}
    jobs = [_as_measured(planned[each["id"]], each, begin, scale, costs) for each in records]
    simulated = simulate(
        jobs,
        Settings(
            processors=result["processors"],
            strategy=row["spec"].get("strategy", "equipartition"),
            options=row["spec"].get("options", {}),
            negotiation="parallel",
        ),
    )
    by_job = {job.id: job for job in simulated.jobs}
    distances = [_distance(each, by_job[each["id"]], begin) for each in records]
    metrics = _compared(result["metrics"], simulated, scale)
    real_run = RealRun(
        experiment=row["experiment"],
        setup=row["setup"],
        seed=row["seed"],
        jobs=len(records),
        scale=scale,
        load_average=result["load_average"],
        real=result["metrics"],
        simulated=simulate_without_costs(row["spec"], row["seed"]),
        with_costs={name: value for name, (_, value) in metrics.items()},
        costs=costs,
        distance=statistics.fmean(each.of_turnaround for each in distances),
    )
    return Validation(
        row["label"], row["experiment"], row["setup"], costs, distances, metrics, real_run
    )


def _mean_costs(records: Sequence[Tree]) -> dict[str, float]:
    """Return the mean costs of starts, ends and resizes of jobs in a run, by name, in seconds.

    A cost that did not occur is 0.
    """
    resizes = [entry for job in records for entry in job["resizes"] if _is_complete(entry)]
    changed = sum(abs(entry["to"] - entry["from"]) for entry in resizes)

    def mean(values: Sequence[float]) -> float:
        return statistics.fmean(values) if values else 0.0

    return {
        "start_s": mean([job["first_iteration_s"] - job["start_s"] for job in records]),
        "end_s": mean([job["end_s"] - job["last_iteration_s"] for job in records]),
        "answer_s": mean([entry["answered_s"] - entry["offered_s"] for entry in resizes]),
        "negotiation_s": mean([entry["begun_s"] - entry["offered_s"] for entry in resizes]),
        "adaptation_s": mean([entry["done_s"] - entry["begun_s"] for entry in resizes]),
        "adaptation_s_per_processor": (
            math.fsum(entry["done_s"] - entry["begun_s"] for entry in resizes) / changed
            if changed
            else 0.0
        ),
    }


def _is_complete(entry: Tree) -> bool:
    moments = ("offered_s", "answered_s", "begun_s", "done_s")
    return entry["outcome"] == "done" and all(entry.get(name) is not None for name in moments)


def _as_measured(
    job: SimJob, record: Tree, begin: float, scale: float, costs: Mapping[str, float]
) -> SimJob:
    """Return a job for the simulator with the submission time and the costs of its real run.

    Args:
        job: the job as the workload defines it.
        record: the record of the same job in the real run.
        begin: the time that is 0 in the simulation, in seconds of the record.
        scale: wall-clock seconds for each second of the workload's definition.
        costs: the mean costs of the run, for a job that was not resized.
    """
    phases = record["phases"]
    speed = job.speedup
    start_s = record["first_iteration_s"] - record["start_s"]
    end_s = record["end_s"] - record["last_iteration_s"]
    work = job.work * scale
    work += start_s * speed(phases[0]["processors"]) + end_s * speed(phases[-1]["processors"])
    own = _mean_costs([record])
    was_resized = any(_is_complete(entry) for entry in record["resizes"])
    used = own if was_resized else costs
    return replace(
        job,
        submit=record["submit_s"] - begin,
        work=work,
        # Simulated jobs end at their estimate, and these costs are not a part of it.
        estimate_s=None,
        adaptation_cost=used["adaptation_s_per_processor"] if job.malleable else None,
        negotiation_delay=used["negotiation_s"] if job.malleable else None,
    )


def _distance(record: Tree, simulated: JobRecord, begin: float) -> Distance:
    return Distance(
        record["id"],
        record["start_s"] - begin,
        simulated.end if simulated.start is None else simulated.start,
        record["end_s"] - begin,
        simulated.end,
        record["end_s"] - record["submit_s"],
    )


def _compared(
    real: Mapping[str, float], simulated: Result, scale: float
) -> dict[str, tuple[float, float]]:
    """Return pairs of the real and the simulated value of the main metrics, by name.

    Args:
        real: the metrics of the real run.
        simulated: its simulation, with times in wall-clock seconds.
        scale: wall-clock seconds for each second of the metrics.
    """
    ours = simulated.metrics
    seconds = (
        *("mean_turnaround_s", "mean_response_s", "mean_wait_s", "mean_execution_s"),
        "schedule_span_s",
    )
    counts = ("negotiations", "adaptations")
    # The work of the simulated jobs has their starts and ends, which do not count.
    longer = ours["schedule_span_s"] / scale / real["schedule_span_s"]
    return {
        "utilization": (real["utilization"], ours["utilization"]),
        "utilization_work": (real["utilization_work"], real["utilization_work"] / longer),
        **{name: (real[name], ours[name] / scale) for name in seconds},
        **{name: (real[name], ours[name]) for name in counts},
    }
