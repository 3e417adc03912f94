"""Metrics by the papers' formulas, updated as jobs end, in constant time per job.

All means are over the jobs that ran. ``utilization`` counts the time for which processors were
allocated (Kumar's Table 4.3, Streit's UTIL). ``utilization_work`` counts the work that was done
(Ghafoor 3.4 with the phase times of 3.15, without the adaptations). Both divide by P x span.
"""

import math
from array import array
from collections import Counter
from collections.abc import Mapping

from pliant.core.model.lifecycle import JobState
from pliant.simulator.run.result import JobRecord
from pliant.strategies.policies.queue_order import policy_shares

#: Runs shorter than this, in seconds, count with this time in the bounded slowdown.
TAU = 10.0

#: The metrics with their descriptions, in the order in which they are shown.
DESCRIPTIONS: Mapping[str, str] = {
    "jobs": "jobs submitted",
    "completed": "jobs that did all of their work",
    "timeout": "jobs ended at their estimate or time limit",
    "failed": "jobs ended by a failure of a node or of a resize",
    "rejected": "jobs that the strategy refused",
    "utilization": "allocated processor time / (P x span)",
    "utilization_work": "work done / (P x span)",
    "mean_wait_s": "submission to start",
    "mean_turnaround_s": "submission to end (ART)",
    "median_turnaround_s": "submission to end",
    "p95_turnaround_s": "submission to end",
    "mean_execution_s": "start to end",
    "mean_bounded_slowdown": f"turnaround / execution, of at least {TAU:g} s",
    "mean_response_s": "turnaround / jobs submitted (rejected ones count 0)",
    "schedule_span_s": "first submission to last end",
    "throughput_per_h": "completed jobs per hour of the schedule",
    "profit": "profit of all jobs by their contracts",
    "late": "accepted jobs that ended after their deadline",
    "negotiations": "negotiations with running jobs",
    "refusals": "negotiations in which the job refused",
    "counters": "negotiations in which the job proposed another size",
    "adaptations": "resizes carried out",
    "suspensions": "times that jobs saved a checkpoint and left",
    "suspended_s": "time between suspension and restart, sum of all jobs",
    "suspension_cost_s": "processor time of their checkpoints and restarts",
    "requests": "evolving jobs' requests for more processors",
    "requests_granted": "requests granted in full",
    "requests_partly": "requests granted in part",
    "requests_refused": "requests that can never be granted",
    "requests_expired": "requests that were not granted in time",
    "requests_cancelled": "requests taken back, or open at the end of the job",
    "releases": "times that evolving jobs gave a surplus back",
    "plans": "plans of the strategy",
    "refused_parts": "parts of plans that no longer fit after the negotiations",
}


#: The metrics that are counted when something happens.
COUNTED = (
    "jobs",
    "late",
    "negotiations",
    "refusals",
    "counters",
    "adaptations",
    "suspensions",
    *(name for name in DESCRIPTIONS if name.startswith("requests")),
    "releases",
    "plans",
    "refused_parts",
)


#: Sums over the jobs that ran.
_SUMS = ("wait", "execution", "slowdown", "area", "work", "profit", "suspended")

#: The metrics that grow with the number of jobs. All others are means, shares or quantiles.
TOTALS = frozenset(
    (
        *COUNTED,
        *("completed", "timeout", "failed", "rejected", "profit", "schedule_span_s"),
        *("suspended_s", "suspension_cost_s"),
    )
)


class Metrics:
    """Collects sums over ended jobs and counters, and computes metrics from both."""

    def __init__(self, processors: int) -> None:
        self._processors = processors
        self._first: float | None = None
        self._last = 0.0
        self._turnarounds = array("d")
        self._states: Counter[JobState] = Counter()
        #: Processor-seconds that checkpoints and restarts of suspended jobs took.
        self.suspension_cost_s = 0.0
        #: Submissions, starts, resizes, suspensions and ends so far. The engine stops a simulation
        #: in which this number no longer rises.
        self.changes = 0
        self._sums = dict.fromkeys(_SUMS, 0.0)
        #: The counters.
        self.counts = dict.fromkeys(COUNTED, 0)

    def submitted(self, time: float) -> None:
        """Count a submission at ``time``; the measured span begins with the first one."""
        self.counts["jobs"] += 1
        if self._first is None or time < self._first:
            self._first = time

    def ended(self, record: JobRecord) -> None:
        """Add the record of a job that has ended, even if it never started."""
        self._states[record.state] += 1
        sums = self._sums
        sums["profit"] += record.profit
        if record.start is None:
            return
        execution, turnaround = record.execution, record.turnaround
        self._last = max(self._last, record.end)
        self._turnarounds.append(turnaround)
        sums["wait"] += record.wait
        sums["execution"] += execution
        sums["slowdown"] += max(1.0, turnaround / max(execution, TAU))
        sums["area"] += record.area
        sums["work"] += record.work
        sums["suspended"] += record.suspended_s

    def summary(self, memory: object = None) -> dict[str, float]:
        """Return all metrics.

        Args:
            memory: the strategy's memory. If the strategy is dynP, which changes the order of the
                queue, the share of time under each order is computed from it.
        """
        ran = sorted(self._turnarounds)
        span = max(0.0, self._last - (self._first or 0.0)) if ran else 0.0
        capacity = self._processors * span
        values: dict[str, float] = {
            **self.counts,
            **self._ends(),
            "utilization": self._sums["area"] / capacity if capacity else 0.0,
            "utilization_work": self._sums["work"] / capacity if capacity else 0.0,
            **{f"mean_{name}_s": self._mean(name) for name in ("wait", "execution")},
            "mean_bounded_slowdown": self._mean("slowdown"),
            "mean_turnaround_s": math.fsum(ran) / len(ran) if ran else 0.0,
            "mean_response_s": math.fsum(ran) / self.counts["jobs"] if ran else 0.0,
            "median_turnaround_s": quantile(ran, 0.5),
            "p95_turnaround_s": quantile(ran, 0.95),
            "schedule_span_s": span,
            "throughput_per_h": 3600 * self._states[JobState.COMPLETED] / span if span else 0.0,
            "profit": self._sums["profit"],
            "suspended_s": self._sums["suspended"],
            "suspension_cost_s": self.suspension_cost_s,
        }
        ordered = {name: values[name] for name in DESCRIPTIONS}
        shares = policy_shares(memory, self._last)
        return ordered | {f"policy_{policy}": share for policy, share in shares.items()}

    def _ends(self) -> dict[str, float]:
        failed = (JobState.FAILED, JobState.NODE_FAIL, JobState.CANCELLED)
        return {
            "completed": self._states[JobState.COMPLETED],
            "timeout": self._states[JobState.TIMEOUT],
            "rejected": self._states[JobState.REJECTED],
            "failed": sum(self._states[state] for state in failed),
        }

    def _mean(self, name: str) -> float:
        return self._sums[name] / len(self._turnarounds) if self._turnarounds else 0.0


def quantile(ascending: list[float], part: float) -> float:
    """Return a quantile, interpolated linearly between two values; 0 if there are no values.

    Args:
        ascending: the values in ascending order.
        part: the part of the values that are below the quantile, from 0 to 1.
    """
    if not ascending:
        return 0.0
    place = part * (len(ascending) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (ascending[above] - ascending[below]) * (place - below)
