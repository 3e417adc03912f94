"""The discrete-event shell around the same core and the same strategies.

A heap of future events drives ``pliant.core`` on a virtual clock; workloads, cost models and
statistics live here. No scheduling or negotiation rule is repeated here: ``simulate(jobs,
Settings(...))`` runs what the daemon runs, and gives back metrics and a record of each job.

May import: the standard library, ``pliant.core``, ``pliant.strategies``; numpy in reports only.
"""

from pliant.simulator.errors import (
    NoProgressError,
    SettingsError,
    SimulationError,
    StrategyFaultError,
)
from pliant.simulator.result import JobRecord, Result, Span
from pliant.simulator.settings import Cluster, Settings
from pliant.simulator.simulate import simulate
from pliant.simulator.workload import Phase, SimJob, Workload, WorkloadError

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
