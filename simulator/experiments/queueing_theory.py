"""Values of queueing theory for an experiment: named formulas of a workload's parameters.

A formula returns None if it does not hold, for example if the system has no steady state.
"""

import types
from collections.abc import Callable, Mapping
from typing import Any

from pliant.core.values.sizes import parse_sizes
from pliant.simulator.inputs.models import parameters
from pliant.simulator.inputs.models.kumar import curve_of

Formula = Callable[[Mapping[str, Any]], float | None]


def theory_value(value: float | str, spec: Mapping[str, Any]) -> float | None:
    """Return a value that theory predicts for a run: a number as it is, or the result of a formula.

    None if the formula does not hold for the run.

    Args:
        value: a number, or the name of a formula.
        spec: the definition of the run, which has the parameters of the formula.
    """
    if not isinstance(value, str):
        return float(value)
    return FORMULAS[value]({**parameters(spec["workload"]), **spec.get("parameters", {})})


def _offered_load(given: Mapping[str, Any]) -> float | None:
    """Return the load offered to the machine: mean run time over mean time between arrivals.

    Both are parameters in ``given``. None if the load is 1 or more, so that queues grow forever.
    """
    load = float(given["base_time"]) / float(given["gap"])
    return load if load < 1 else None


def _processor_sharing(given: Mapping[str, Any]) -> float | None:
    """Return the mean response time of an M/M/1 queue, in seconds; None if it is not stable.

    The formula holds if each job can use the whole machine with linear speedup, because then the
    machine works at its full rate while there is a job.
    """
    load = _offered_load(given)
    return None if load is None else float(given["base_time"]) / (1 - load)


def _rigid_load(given: Mapping[str, Any]) -> float | None:
    """Return the load that rigid jobs offer, as a fraction of the machine's processor time.

    Each job has one size, from the range ``minpe``. The less efficient it is at this size, the
    more processor time it takes. None if the load is 1 or more, so that queues grow forever.
    """
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
