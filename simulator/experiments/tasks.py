"""One run of an experiment, as data: it can be handed to another process."""

import importlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from pliant.core.sizes import SizesError, parse_sizes
from pliant.simulator import models
from pliant.simulator.experiments.definitions import ExperimentError
from pliant.simulator.swf import read_swf
from pliant.simulator.workload import Workload, WorkloadError

#: Names the folder of the logs that experiments run on.
LOGS = "PLIANT_WORKLOADS"
_TRANSFORMS = ("malleable", "sizes", "spread", "evolving", "shrinking_factor")


def workload_of(spec: Mapping[str, Any], seed: int) -> Workload:
    """The workload of one run.

    Raises:
        ExperimentError, WorkloadError: it cannot be made.
    """
    name, jobs = spec.get("workload", ""), spec.get("jobs")
    if models.is_model(name):
        count = {} if jobs is None else {"jobs": jobs}
        made = models.make(name, {**spec.get("parameters", {}), "seed": seed, **count})
    else:
        made = read_swf(_log(name), spec.get("processors"), jobs)
    return _transformed(made, spec.get("transform", {}), Random(seed))


def _log(name: str) -> Path:
    """A log by its path, or in the folder of logs."""
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
            sizes = parse_sizes(str(given["sizes"])) if "sizes" in given else None
        except SizesError as error:
            raise WorkloadError(f"transform: {error}") from None
        spread = given.get("spread", "even")
        workload = models.make_malleable(workload, given["malleable"], sizes, spread, rng)
    if given.get("evolving"):
        workload = models.make_evolving(workload, given["evolving"], rng)
    return workload


def run_task(spec: Mapping[str, Any], seed: int, metrics: Sequence[str]) -> dict[str, float]:
    """Simulate once and say what was measured.

    Raises:
        ExperimentError: a metric is not known, or the definition is wrong.
        WorkloadError, ValueError: the workload, the strategy or the settings make no sense.
    """
    simulator: Any = importlib.import_module("pliant.simulator")

    workload = workload_of(spec, seed)
    processors = spec.get("processors") or workload.processors
    if processors is None:
        raise ExperimentError("processors: the size of the machine is not known")
    settings = simulator.Settings(
        processors=processors,
        strategy=spec.get("strategy", "equipartition"),
        options={key: str(value) for key, value in spec.get("options", {}).items()},
        seed=seed,
        **spec.get("settings", {}),
    )
    result = simulator.simulate(workload.jobs, settings)
    return {name: _measure(name, result, spec.get("warm_up", 0)) for name in metrics}


def _measure(name: str, result: Any, warm_up: int) -> float:
    """A metric of the simulator, or one of the means below."""
    means = {
        "mean_response_s": _mean_response,
        "mean_response_of_submitted_s": _mean_response_of_submitted,
    }
    if name in means:
        return means[name](result.jobs[warm_up:])
    value = result.metrics.get(name)
    if not isinstance(value, int | float):
        known = sorted({*means, *result.metrics})
        raise ExperimentError(f"metrics: {name!r} is not known; known are: {', '.join(known)}")
    return float(value)


def _responses(jobs: Sequence[Any]) -> list[float]:
    return [job.end - job.submit for job in jobs if job.start is not None and job.end is not None]


def _mean_response(jobs: Sequence[Any]) -> float:
    """From submission to end, of the jobs that ran."""
    taken = _responses(jobs)
    return math.fsum(taken) / len(taken) if taken else 0.0


def _mean_response_of_submitted(jobs: Sequence[Any]) -> float:
    """The same, where a job that was rejected counts as 0."""
    return math.fsum(_responses(jobs)) / len(jobs) if jobs else 0.0
