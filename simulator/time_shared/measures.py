"""Measurements of a run: times of jobs, idle memory, uneven load of nodes, and reservations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pliant.core.model.nodes import NodeLoad, NodeReservation, ReservationState
from pliant.core.values.ids import NodeName
from pliant.simulator.time_shared.jobs import JobRun
from pliant.simulator.time_shared.settings import MB

#: Idle memory is averaged over samples at these intervals, in seconds. The paper found that the
#: interval does not matter (section 4.1).
INTERVALS_S = (1, 10, 30, 60)

#: The metrics with their descriptions.
SHARED_DESCRIPTIONS: Mapping[str, str] = {
    "execution_s": "submission to end, sum of all jobs",
    "cpu_s": "processor time, sum of all jobs",
    "page_s": "paging, sum of all jobs",
    "queue_s": "waiting at home and on nodes, sum of all jobs",
    "migration_s": "migrations and remote starts, sum of all jobs",
    "mean_slowdown": "submission to end / processor time",
    "worst_slowdown": "the largest slowdown of a job",
    "skew": "standard deviation of the running jobs over nodes that are not reserved",
    "idle_mb": "idle memory of all nodes",
    "idle_normal_mb": "idle memory of the nodes that are not reserved",
    **{f"idle_mb_{each}s": f"the same, sampled every {each} s" for each in INTERVALS_S},
    "makespan_s": "first submission to last end",
    "remote_starts": "jobs that started on another node than their home",
    "migrations": "running jobs that were moved",
    "suspensions": "jobs that were suspended",
    "reservations": "nodes that began to be reserved",
    "reservations_used": "reservations that a job was moved to",
    "reservations_gone": "reservations that ended unused because no node was blocked",
    "reservations_timed_out": "reservations that were given up",
    "most_reserved": "the largest number of nodes reserved at once",
    "mean_reserved": "nodes reserved, mean over time",
    "reserved_queue_s": "waiting of jobs that were moved to reserved nodes, on these nodes",
    "reserved_queue_bound_s": "the bound of section 5 on this waiting",
    "model_s": "execution time by the model of section 5: paging, waiting elsewhere, and the bound",
    "beyond_model_s": "execution time minus that of the model",
}


@dataclass(slots=True)
class _Visit:
    """The stay of one job on a reserved node."""

    run: JobRun
    arrival: float
    queue_before: float


class Measures:
    """Collects the measurements of one simulation of load sharing."""

    def __init__(self) -> None:
        self.migrations = self.remote_starts = self.suspensions = 0
        self._runs: list[JobRun] = []
        self._samples = 0
        self._skew = 0.0
        self._idle = self._idle_normal = 0.0
        self._sampled = dict.fromkeys(INTERVALS_S, (0, 0.0))
        self._reserved_now: dict[NodeName, NodeReservation] = {}
        self._counts = dict.fromkeys(("started", "used", "gone", "timed out"), 0)
        self._most_reserved = 0
        self._reserved_sum = 0
        #: The jobs on each reserved node, from its reservation to its release.
        self._visits: dict[NodeName, list[_Visit]] = {}
        self._closed: list[list[_Visit]] = []

    def ended(self, run: JobRun) -> None:
        """Add a job that has ended."""
        self._runs.append(run)

    def sample(
        self, now: float, loads: Mapping[NodeName, NodeLoad], running: Sequence[int]
    ) -> None:
        """Add the present load.

        Args:
            now: seconds since the beginning.
            loads: the load of each node.
            running: the number of jobs on each node, in the same order.
        """
        reserved = self._reserved_now
        idle = idle_normal = 0.0
        total = squares = 0
        for name, load, number in zip(loads, loads.values(), running, strict=True):
            free = load.memory - load.demand
            if free < 0:
                free = 0.0
            idle += free
            if name not in reserved:
                idle_normal += free
                total += number
                squares += number * number
        normal = len(running) - len(reserved)
        self._samples += 1
        self._skew += math.sqrt(max(0.0, squares / normal - (total / normal) ** 2))
        self._idle += idle
        self._idle_normal += idle_normal
        self._reserved_sum += len(reserved)
        for interval in INTERVALS_S:
            if now % interval == 0:
                number, sum_ = self._sampled[interval]
                self._sampled[interval] = number + 1, sum_ + idle

    def reserved(
        self, now: float, reservations: Sequence[NodeReservation], timeout_s: float
    ) -> None:
        """Count the reservations that were made, used, dropped or timed out since the last call.

        Args:
            now: seconds since the beginning.
            reservations: all reservations after a pass.
            timeout_s: the time after which the strategy gives a reservation up; inf if never.
        """
        if not reservations and not self._reserved_now:
            return
        after = {each.node: each for each in reservations}
        for node, old in self._reserved_now.items():
            new = after.get(node)
            if old.state is ReservationState.RESERVING:
                if new is None:
                    late = now >= old.since + timeout_s
                    self._counts["timed out" if late else "gone"] += 1
                elif new.state is ReservationState.RESERVED:
                    self._counts["used"] += 1
            elif new is None:
                self._closed.append(self._visits.pop(node, []))
        self._counts["started"] += len(after.keys() - self._reserved_now.keys())
        self._most_reserved = max(self._most_reserved, len(after))
        self._reserved_now = after

    def visits_reserved(self, now: float, node: NodeName, run: JobRun) -> None:
        """Record that job ``run`` is moved to ``node``, reserved for jobs of blocked nodes.

        A blocked node is short of memory.
        """
        self._visits.setdefault(node, []).append(_Visit(run, now, run.queue))

    def summary(self, begin: float) -> dict[str, float]:
        """Return all metrics.

        Args:
            begin: the time of the first submission, in seconds of simulated time.
        """
        runs = sorted(self._runs, key=lambda run: run.job.id)
        slowdowns = [run.wall_s / run.job.cpu_s for run in runs]
        visits = [*self._closed, *self._visits.values()]
        waited = math.fsum(
            each.run.queue - each.queue_before for episode in visits for each in episode
        )
        bound = math.fsum(_queue_bound(episode) for episode in visits)
        execution = math.fsum(run.wall_s for run in runs)
        cpu = math.fsum(run.cpu for run in runs)
        page, queue = math.fsum(run.page for run in runs), math.fsum(run.queue for run in runs)
        model = cpu + page + queue - waited + bound
        values = {
            "execution_s": execution,
            "cpu_s": cpu,
            "page_s": page,
            "queue_s": queue,
            "migration_s": math.fsum(run.migration for run in runs),
            "mean_slowdown": math.fsum(slowdowns) / len(slowdowns),
            "worst_slowdown": max(slowdowns),
            "skew": self._skew / self._samples,
            "idle_mb": self._idle / self._samples / MB,
            "idle_normal_mb": self._idle_normal / self._samples / MB,
            "makespan_s": max(run.end or 0.0 for run in runs) - begin,
            "remote_starts": self.remote_starts,
            "migrations": self.migrations,
            "suspensions": self.suspensions,
            "reservations": self._counts["started"],
            "reservations_used": self._counts["used"],
            "reservations_gone": self._counts["gone"],
            "reservations_timed_out": self._counts["timed out"],
            "most_reserved": self._most_reserved,
            "mean_reserved": self._reserved_sum / self._samples,
            "reserved_queue_s": waited,
            "reserved_queue_bound_s": bound,
            "model_s": model,
            "beyond_model_s": execution - model,
        }
        for interval, (number, total) in self._sampled.items():
            values[f"idle_mb_{interval}s"] = total / number / MB if number else 0.0
        return {name: float(values[name]) for name in SHARED_DESCRIPTIONS}


def _queue_bound(visits: Sequence[_Visit]) -> float:
    """Return a bound on the total waiting time of the jobs on a reserved node (Chen et al., 5).

    For each job in order of arrival, take the time from the arrival of the next job to the end of
    this one, and multiply it by the number of later jobs. The bound is the sum of these products.
    """
    total = 0.0
    for place, each in enumerate(visits[:-1]):
        end = each.run.end or 0.0
        total += (len(visits) - 1 - place) * max(0.0, end - visits[place + 1].arrival)
    return total
