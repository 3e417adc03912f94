"""The discrete-event shell around the same core and the same strategies.

A heap of future events drives ``pliant.core`` on a virtual clock; workloads, cost models and
statistics live here. No scheduling or negotiation rule is repeated here: ``simulate(jobs,
Settings(...))`` runs what the daemon runs, and gives back metrics and a record of each job.

May import: the standard library, ``pliant.core``, ``pliant.strategies``; numpy in reports only.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from pliant.core.support.lazy_imports import lazy_names

if TYPE_CHECKING:
    from pliant.simulator.inputs.errors import (
        NoProgressError,
        SettingsError,
        SimulationError,
        StrategyFaultError,
    )
    from pliant.simulator.inputs.settings import Cluster, Settings
    from pliant.simulator.inputs.workload import Phase, SimJob, Workload, WorkloadError
    from pliant.simulator.run.result import JobRecord, Result, Span
    from pliant.simulator.run.simulate import simulate

__all__ = [
    "Cluster",
    "JobRecord",
    "NoProgressError",
    "Phase",
    "Result",
    "Settings",
    "SettingsError",
    "SimJob",
    "SimulationError",
    "Span",
    "StrategyFaultError",
    "Workload",
    "WorkloadError",
    "simulate",
]

_resolve = lazy_names(
    __name__,
    {
        "Cluster": "settings",
        "JobRecord": "result",
        "NoProgressError": "errors",
        "Phase": "workload",
        "Result": "result",
        "Settings": "settings",
        "SettingsError": "errors",
        "SimJob": "workload",
        "SimulationError": "errors",
        "Span": "result",
        "StrategyFaultError": "errors",
        "Workload": "workload",
        "WorkloadError": "workload",
        "simulate": "simulate",
    },
)


class _Package(ModuleType):
    """This package, whose ``simulate`` is the function and not the module of the same name.

    The import system sets the attribute to the module when that is first imported.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name != "simulate" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> object:
        return _resolve(name)


sys.modules[__name__].__class__ = _Package
