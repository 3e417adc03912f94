"""Small workloads for simulations, and strategies that do what a test tells them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.core.model.views_and_plans import Availability, Plan, View, WaitingJob
from pliant.core.values.sizes import parse_sizes
from pliant.simulator import JobRecord, Result, Settings, SimJob, simulate
from pliant.strategies import Strategy


def job(number: int, submit: float, sizes: str, work: float, **more: Any) -> SimJob:
    """A job; one with a range of sizes is malleable unless it says otherwise."""
    allowed = parse_sizes(sizes)
    more.setdefault("malleable", not allowed.fixed)
    more.setdefault("requested", allowed.max)
    return SimJob(number, submit, work, allowed, **more)


def rigid(number: int, submit: float, size: int, seconds: float, **more: Any) -> SimJob:
    """A rigid job by its run time."""
    return job(number, submit, str(size), seconds * size, **more)


def run(jobs: list[SimJob], processors: int = 8, **settings: Any) -> Result:
    """Simulate; the core's invariants are checked after every event."""
    settings.setdefault("strategy", "equipartition")
    settings.setdefault("check", True)
    return simulate(jobs, Settings(processors, keep_spans=True, **settings))


def by_id(result: Result) -> dict[int, JobRecord]:
    """The records by number."""
    return {record.id: record for record in result.jobs}


class Scripted(Strategy):
    """Plans what a function says."""

    def __init__(self, plan: Callable[[View], Plan]) -> None:
        self._plan = plan

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Ever."""
        return Availability(True, None, job.sizes.min)

    def allocate_processors(self, view: View) -> Plan:
        """Ask the function."""
        return self._plan(view)


__all__ = ["Scripted", "by_id", "job", "rigid", "run"]
