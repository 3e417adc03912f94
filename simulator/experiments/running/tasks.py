"""One run of an experiment as data, which can be sent to another process."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from pliant.core.values.sizes import SizesError, parse_sizes
from pliant.core.values.speedup import SpeedupError
from pliant.simulator.experiments.definition.definitions import ExperimentError
from pliant.simulator.experiments.running.multicluster_tasks import run_multicluster
from pliant.simulator.inputs import models
from pliant.simulator.inputs.costs import parse_cost
from pliant.simulator.inputs.failures import parse_failures
from pliant.simulator.inputs.settings import Settings, parse_clusters
from pliant.simulator.inputs.swf import read_swf
from pliant.simulator.inputs.workload import SimJob, Workload, WorkloadError
from pliant.simulator.multicluster.metric_names import DESCRIPTIONS as DESCRIPTIONS_OF_CLUSTERS
from pliant.simulator.run.metrics import DESCRIPTIONS
from pliant.simulator.run.result import JobRecord
from pliant.simulator.run.simulate import simulate
from pliant.simulator.time_shared.measures import SHARED_DESCRIPTIONS
from pliant.simulator.time_shared.task import run_shared_task

#: The environment variable with the folder of the workload logs.
LOGS = "PLIANT_WORKLOADS"
#: Settings that a definition states elsewhere, or that are for pictures only.
_NOT_SETTINGS = {"processors", "strategy", "options", "seed", "keep_jobs", "keep_spans"}
#: The beginning of the metrics of single jobs, in runs that list their jobs.
_OF_JOB = "turnaround_s_of_job_"
_TRANSFORMS = ("malleable", "sizes", "speedup", "spread", "evolving", "shrinking_factor")


def workload_of(spec: Mapping[str, Any], seed: int) -> Workload:
    """Return the workload of one run.

    Raises:
        ExperimentError, WorkloadError: the workload cannot be made.
    """
    name, jobs, machine = spec.get("workload", ""), spec.get("jobs"), _machine(spec)
    if "job_list" in spec:
        made = _listed(spec["job_list"])
    elif models.is_model(name):
        count = {} if jobs is None else {"jobs": jobs}
        size = {} if machine is None else {"processors": machine}
        made = models.make(name, {**size, **spec.get("parameters", {}), "seed": seed, **count})
    else:
        made = read_swf(_log(name), machine, jobs)
    return _transformed(made, spec.get("transform", {}), Random(seed))


def _listed(entries: Sequence[Mapping[str, Any]]) -> Workload:
    """Return a workload of jobs that the definition lists, with linear speedup."""
    made = []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or set(entry) != {"submit", "work", "sizes"}:
            raise ExperimentError(
                f"job_list[{number - 1}]: expected submit, work and sizes, not {entry!r}"
            )
        try:
            sizes = parse_sizes(str(entry["sizes"]))
            submit, work = float(entry["submit"]), float(entry["work"])
        except (SizesError, TypeError, ValueError) as error:
            raise ExperimentError(f"job_list[{number - 1}]: {error}") from None
        is_malleable = sizes.min < sizes.max
        made.append(SimJob(number, submit, work, sizes, sizes.max, malleable=is_malleable))
    return Workload(made, name="listed jobs")


def _machine(spec: Mapping[str, Any]) -> int | None:
    """Return the number of processors if the definition states it; None to take that of the log."""
    clusters = _settings(spec.get("settings", {})).get("clusters", ())
    return spec.get("processors") or sum(each.processors for each in clusters) or None


def _log(name: str) -> Path:
    """Return the path of a log, which may be given relative to the folder of logs."""
    places = [Path(name), Path(os.environ.get(LOGS, "")) / name]
    found = next((place for place in places if place.is_file()), None)
    if not name or found is None:
        known = ", ".join(models.MODELS)
        raise ExperimentError(f"workload {name!r}: no model ({known}), no file, and not in ${LOGS}")
    return found


def _transformed(workload: Workload, given: Mapping[str, Any], rng: Random) -> Workload:
    unknown = sorted(set(given) - set(_TRANSFORMS))
    if unknown:
        raise ExperimentError(
            f"transform.{unknown[0]}: not known; known are: {', '.join(_TRANSFORMS)}"
        )
    workload = models.shrink(workload, float(given.get("shrinking_factor", 1.0)))
    if given.get("malleable"):
        try:
            sizes = models.parse_size_rule(str(given["sizes"])) if "sizes" in given else None
            text = given.get("speedup")
            speedup = None if text is None else models.parse_speedup_rule(str(text))
        except (SizesError, SpeedupError) as error:
            raise WorkloadError(f"transform: {error}") from None
        spread = given.get("spread", "even")
        share = given["malleable"]
        workload = models.make_malleable(workload, share, sizes, spread, rng, speedup)
    if given.get("evolving"):
        workload = models.make_evolving(workload, given["evolving"], rng)
    return workload


def run_task(spec: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Run one simulation and return all of its metrics.

    Raises:
        ExperimentError: the definition is invalid.
        WorkloadError, ValueError: the workload, the strategy or the settings are invalid.
    """
    if "time_shared" in spec:
        return run_shared_task(spec, seed)
    workload = workload_of(spec, seed)
    if "multicluster" in spec:
        return run_multicluster(spec["multicluster"], workload, seed)
    processors = _machine(spec) or workload.processors
    if processors is None:
        raise ExperimentError("processors: the size of the machine is not known")
    is_listed = "job_list" in spec
    settings = Settings(
        processors=processors,
        strategy=spec.get("strategy", "equipartition"),
        options=spec.get("options", {}),
        seed=seed,
        keep_jobs=bool(spec.get("warm_up")) or is_listed,
        **_settings(spec.get("settings", {})),
    )
    result = simulate(workload.jobs, settings)
    measured = {name: float(value) for name, value in result.metrics.items()}
    measured |= _means_after(result.jobs, spec.get("warm_up", 0))
    if is_listed:
        measured |= {f"{_OF_JOB}{job.id}": job.turnaround for job in result.jobs}
    return measured


def is_metric(name: str) -> bool:
    """Return whether the results of runs may contain a metric of this name."""
    known = (*DESCRIPTIONS, *SHARED_DESCRIPTIONS, *DESCRIPTIONS_OF_CLUSTERS)
    return name in known or name.startswith(("policy_", _OF_JOB))


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for the simulator, with costs and clusters converted from their texts.

    The texts have the form of the command line's options.
    """
    known = {field.name for field in dataclasses.fields(Settings)} - _NOT_SETTINGS
    for key in given:
        if key not in known:
            raise ExperimentError(
                f"settings.{key}: not known; known are: {', '.join(sorted(known))}"
            )
    readers: dict[str, Callable[[str], object]] = {
        "negotiation_cost": parse_cost,
        "adaptation_cost": parse_cost,
        "clusters": parse_clusters,
        "failures": parse_failures,
    }
    return {
        key: readers[key](str(value)) if key in readers else value for key, value in given.items()
    }


def _means_after(jobs: Sequence[JobRecord], warm_up: int) -> dict[str, float]:
    """Return mean response times without the first ``warm_up`` jobs, which met an empty machine.

    The result is empty if ``warm_up`` is 0 or if none of the other jobs was started.
    """
    counted = sorted(jobs, key=lambda job: (job.submit, job.id))[warm_up:]
    taken = [job.turnaround for job in counted if job.start is not None]
    if not warm_up or not taken:
        return {}
    total = math.fsum(taken)
    return {"mean_turnaround_s": total / len(taken), "mean_response_s": total / len(counted)}
