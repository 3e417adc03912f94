"""What theory says of an experiment: formulas by name, of the parameters of a workload.

A formula gives None where it does not hold, as in a system that has no steady state.
"""

import types
from collections.abc import Callable, Mapping
from typing import Any

from pliant.core.values.sizes import parse_sizes
from pliant.simulator.inputs.models import parameters
from pliant.simulator.inputs.models.kumar import curve_of

Formula = Callable[[Mapping[str, Any]], float | None]


def theory_value(value: float | str, spec: Mapping[str, Any]) -> float | None:
    """A number as it is, or the value of a formula for what is run."""
    if not isinstance(value, str):
        return float(value)
    return FORMULAS[value]({**parameters(spec["workload"]), **spec.get("parameters", {})})


def _offered_load(given: Mapping[str, Any]) -> float | None:
    """Arrival rate times the mean time on the whole machine: what is used while it is stable."""
    load = float(given["base_time"]) / float(given["gap"])
    return load if load < 1 else None


def _processor_sharing(given: Mapping[str, Any]) -> float | None:
    """Mean response time in an M/M/1 queue, under any rule that does not know how long jobs are.

    It holds if any job can use the whole machine, with linear speedup: the machine then works at
    full rate while there is a job.
    """
    load = _offered_load(given)
    return None if load is None else float(given["base_time"]) / (1 - load)


def _rigid_load(given: Mapping[str, Any]) -> float | None:
    """Offered load of jobs that have one size each, with the efficiency that they have there."""
    curve, processors = curve_of(str(given["speedup"])), int(given["processors"])
    sizes = parse_sizes(str(given["minpe"])).values
    cost = sum(size / curve(size) for size in sizes) / len(sizes) * curve(processors) / processors
    load = cost * float(given["base_time"]) / float(given["gap"])
    return load if load < 1 else None


FORMULAS: Mapping[str, Formula] = types.MappingProxyType(
    {
        "offered-load": _offered_load,
        "processor-sharing": _processor_sharing,
        "rigid-load": _rigid_load,
    }
)
