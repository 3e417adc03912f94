"""A run of an experiment with time-shared nodes, read from data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pliant.simulator.inputs.simulation_errors import SettingsError
from pliant.simulator.inputs.workload import WorkloadError
from pliant.simulator.time_shared.settings import TimeSharedSettings
from pliant.simulator.time_shared.simulation import simulate_shared
from pliant.simulator.time_shared.workload import ChenWorkload

#: The name of the only workload of these runs.
WORKLOAD = "chen"
_ELSEWHERE = {"strategy", "options"}


def run_shared_task(spec: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Run one simulation and return all of its metrics.

    Args:
        spec: the run; ``time_shared`` has the settings, and ``parameters`` the workload.
        seed: the seed of the workload.

    Raises:
        WorkloadError, SettingsError, ValueError: the definition is invalid. The message names the
            key.
    """
    workload, settings = read_shared_task(spec)
    return simulate_shared(workload.make(seed, len(settings.memories())), settings)[0]


def read_shared_task(spec: Mapping[str, Any]) -> tuple[ChenWorkload, TimeSharedSettings]:
    """Return the workload and the settings of a run.

    Raises:
        WorkloadError, SettingsError: the definition is invalid. The message names the key.
    """
    if spec.get("workload") != WORKLOAD:
        raise WorkloadError(
            f"workload: expected {WORKLOAD} with time_shared, not {spec.get('workload')!r}"
        )
    for key in ("settings", "transform", "job_list", "processors", "warm_up"):
        if spec.get(key):
            raise SettingsError(f"{key}: not known with time_shared; use time_shared, parameters")
    settings = _made(
        TimeSharedSettings,
        "time_shared",
        spec["time_shared"],
        strategy=spec.get("strategy", "load-sharing"),
        options=spec.get("options", {}),
    )
    parameters = dict(spec.get("parameters", {}))
    if "jobs" in spec:
        parameters["jobs"] = spec["jobs"]
    return _made(ChenWorkload, "parameters", parameters), settings


def _made(kind: Any, place: str, given: Mapping[str, Any], **others: object) -> Any:
    """Return an object of a dataclass, made from a mapping of its fields.

    Args:
        kind: the dataclass.
        place: the position of the mapping in the definition, for errors.
        given: values from the definition, by field.
        others: further fields, which are not checked.

    Raises:
        SettingsError: a key is not known, or a value has another type.
    """
    fields = {each.name: each for each in dataclasses.fields(kind) if each.name not in _ELSEWHERE}
    for key, value in given.items():
        if key not in fields:
            raise SettingsError(f"{place}.{key}: not known; known are: {', '.join(fields)}")
        wanted = type(fields[key].default)
        is_number = wanted is float and isinstance(value, int) and not isinstance(value, bool)
        if type(value) is not wanted and not is_number:
            raise SettingsError(f"{place}.{key}: expected {wanted.__name__}, not {value!r}")
    return kind(**given, **others)
