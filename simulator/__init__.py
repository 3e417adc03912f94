"""A discrete-event simulator around the core and the strategies that real clusters use.

The simulator adds workloads, cost models, failures, a virtual clock and statistics. It does not
repeat any scheduling or negotiation rule: ``simulate(jobs, Settings(...))`` runs the code of the
server and returns metrics and a record of each job.

`inputs` reads or makes jobs, costs and settings, and `run` is one simulation. `time_shared` (nodes
that share their processor) and `multicluster` (clusters with users of their own) have loops of
their own. `what_if` simulates the queue of a server, `experiments` repeats published papers.

May import: the standard library, ``pliant.core``, ``pliant.strategies``, ``pliant.charts``; numpy
in `report`, PyYAML in `experiments`, matplotlib for pictures.
"""

from typing import TYPE_CHECKING

from pliant.core.support.lazy_imports import lazy_names

if TYPE_CHECKING:
    from pliant.simulator.inputs.settings import Cluster, Settings
    from pliant.simulator.inputs.simulation_errors import (
        NoProgressError,
        SettingsError,
        SimulationError,
        StrategyFaultError,
    )
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

__getattr__ = lazy_names(
    __name__,
    {
        "Cluster": "inputs.settings",
        "JobRecord": "run.result",
        "NoProgressError": "inputs.simulation_errors",
        "Phase": "inputs.workload",
        "Result": "run.result",
        "Settings": "inputs.settings",
        "SettingsError": "inputs.simulation_errors",
        "SimJob": "inputs.workload",
        "SimulationError": "inputs.simulation_errors",
        "Span": "run.result",
        "StrategyFaultError": "inputs.simulation_errors",
        "Workload": "inputs.workload",
        "WorkloadError": "inputs.workload",
        "simulate": "run.simulate",
    },
)
