"""``fpsma`` and ``egs``, each with ``+pra`` or ``+pwa`` (KOALA: Buisson et al. 2007, 5.2, 5.3).

A strategy combines a malleability management policy (module ``koala_malleability``) with a
precedence, which says whether running or waiting jobs get processors first (module
``koala_precedence``). The queue is scanned from head to tail, and later jobs may start before a job
that does not fit. The strategy counts how often a job could not be placed, and rejects a job that
exceeds ``max-tries`` (4.1).
"""

from collections.abc import Iterable
from dataclasses import replace

from pliant.core.model.views_and_plans import (
    Availability,
    Plan,
    Rejection,
    RunningJob,
    View,
    WaitingJob,
)
from pliant.core.values.ids import JobId
from pliant.core.values.processors import count
from pliant.strategies.interface.base import Strategy
from pliant.strategies.multicluster.placement_rules import PlacementRule
from pliant.strategies.policies.availability_estimate import too_few, too_wide
from pliant.strategies.policies.koala_malleability import Egs, Fpsma, MalleabilityPolicy
from pliant.strategies.policies.koala_precedence import Initial, Limits, Precedence, Round
from pliant.strategies.policies.placement import cluster_of, processors_by_cluster
from pliant.strategies.policies.queue_order import queue_with


class Koala(Strategy):
    """A KOALA strategy: a malleability policy, and whether running or waiting jobs come first.

    Args:
        policy: the rule by which jobs share growth and shrinking.
        precedence: which jobs come first, running (pra) or waiting (pwa) jobs.
        limits: the placement rule, the initial sizes of jobs, and the limit of their growth.
        max_tries: reject a job after more failed placements than this; None for no limit.
        poll: failed placements of a job within this many seconds count as one.

    Raises:
        ValueError: a number is below 0.
    """

    spans_clusters = False

    def __init__(
        self,
        policy: MalleabilityPolicy,
        precedence: Precedence = "pra",
        *,
        limits: Limits = Limits(),  # noqa: B008 - immutable
        max_tries: int | None = None,
        poll: float = 0.0,
    ) -> None:
        numbers = {"threshold": limits.threshold, "cap": limits.cap, "max-tries": max_tries}
        for name, number in {**numbers, "poll": poll}.items():
            if number is not None and not number >= 0:
                raise ValueError(f"{name} {number} is below 0")
        self._policy, self._precedence = policy, precedence
        self._limits, self._most, self._poll = limits, max_tries, poll

    def allocate_processors(self, view: View) -> Plan:
        """Return the plan of one round for all clusters, and count the jobs that did not fit."""
        done = self._round(view)
        plan = done.placer.plan(done.reasons, behind=too_few(done.idle()))
        return plan if self._most is None else self._count(view, plan, done.failed)

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Return when the job could start: now if this round would start it, or an estimate."""
        largest = max(map(count, processors_by_cluster(view.nodes).values()), default=0)
        if max(job.components, default=job.sizes.min) > largest and not self._may_split(job):
            return Availability(False, None, 0, too_wide(job, largest, "largest cluster"))
        line = queue_with(view.waiting, job)
        done = self._round(replace(view, waiting=tuple(line)))
        for start in done.placer.starts:
            if start.job == job.id:
                return Availability(
                    True, view.now, count(start.processors), "processors are available"
                )
        if len(job.components) > 1:
            reason = "not known: the job needs several clusters at the same time"
            return Availability(True, None, job.sizes.min, reason)
        return _later(job, view)

    def _round(self, view: View) -> Round:
        done = Round(view, self._policy, self._limits)
        done.run(self._precedence)
        return done

    def _may_split(self, job: WaitingJob) -> bool:
        return self._limits.placement == "fcm" and bool(job.components)

    def _count(self, view: View, plan: Plan, failed: Iterable[JobId]) -> Plan:
        """Return the plan with updated counts of failed placements, which its memory stores.

        The plan also rejects jobs with more failures than ``max_tries``.

        Args:
            view: the cluster.
            plan: the plan of this round.
            failed: the jobs that could not be placed in this round.
        """
        # A job with reserved processors returns to the queue if a donor refuses.
        present = [job.id for job in view.waiting] + [job.id for job in view.promised]
        before, since = _tries(view.memory)
        is_due = since is None or self._poll == 0 or view.now >= since + self._poll
        tries = {job: before[job] for job in present if job in before}
        # A job that has just come is tried for the first time, also between two polls.
        for job in failed:
            if is_due or job not in tries:
                tries[job] = tries.get(job, 0) + 1
        over = [job for job in failed if self._most is not None and tries[job] > self._most]
        rejects = tuple(Rejection(job, f"placement tries: {tries[job]} failed") for job in over)
        counted = tuple((job, n) for job, n in tries.items() if job not in over)
        memory: tuple[object, ...] = ("tries", counted)
        if self._poll > 0:
            memory = (*memory, view.now if is_due else since)
        reasons = {job: why for job, why in plan.reasons.items() if job not in over}
        return replace(plan, rejects=rejects, reasons=reasons, memory=memory)


def _tries(memory: object) -> tuple[dict[JobId, int], float | None]:
    """Return the failed placements by job, and when they were last counted, from ``View.memory``.

    The time is None if it is not known, or if failures are counted in each round.
    """
    result: dict[JobId, int] = {}
    since: float | None = None
    match memory:
        case ["tries", [*counts], *rest]:
            for entry in counts:
                match entry:
                    case [int() as number, int() as times]:
                        result[JobId(number)] = times
            match rest:
                case [int() | float() as last]:
                    since = float(last)
    return result, since


def _later(job: WaitingJob, view: View) -> Availability:
    """Return when a job could start: at the first time at which a cluster has enough processors.

    The ends of running jobs are estimates. The time is None if too few of them are known.
    """
    found: list[tuple[float, int]] = []
    for name, part in processors_by_cluster(view.nodes).items():
        reach = count(part & view.free)
        own = (run for run in view.running if cluster_of(run, view) == name)
        for end, run in sorted(((_end(run), run) for run in own), key=lambda each: each[0]):
            reach += count(run.held & part)
            if job.sizes.min <= reach:
                found.append((max(end, view.now), reach))
                break
    start, reach = min(found, key=lambda each: each[0], default=(_NEVER, 0))
    if start == _NEVER:
        reason = "the running jobs state no estimates"
        return Availability(True, None, job.sizes.min, reason)
    return Availability(True, start, job.sizes.largest_at_most(reach), "when running jobs end")


_NEVER = float("inf")


def _end(job: RunningJob) -> float:
    end = job.expected_end
    return _NEVER if end is None else end


def fpsma(
    *,
    precedence: Precedence = "pra",
    initial: Initial = "lo",
    threshold: int = 0,
    cap: int | None = None,
    placement: PlacementRule = "wf",
    max_tries: int | None = None,
    poll: float = 0.0,
) -> Koala:
    """Return ``fpsma``: the earliest started job grows first, the latest started one shrinks first.

    Args:
        precedence: which jobs come first, running (pra) or waiting (pwa) jobs.
        initial: the size that jobs start with.
        threshold: processors of each cluster that growth leaves idle.
        cap: processors that all jobs together do not exceed by growth; None for no limit.
        placement: rule for clusters: wf (most idle processors), cf (close to files), cm (fewest
            clusters) or fcm (fewest clusters, split by idle processors).
        max_tries: reject a job after more failed placements than this; None for no limit.
        poll: failed placements of a job within this many seconds count as one.
    """
    limits = Limits(threshold, initial, cap, placement)
    return Koala(Fpsma(), precedence, limits=limits, max_tries=max_tries, poll=poll)


def fpsma_pra(
    *,
    initial: Initial = "lo",
    threshold: int = 0,
    cap: int | None = None,
    placement: PlacementRule = "wf",
    max_tries: int | None = None,
    poll: float = 0.0,
) -> Koala:
    """Return ``fpsma+pra``: running jobs come first.

    Args:
        initial: the size that jobs start with.
        threshold: processors of each cluster that growth leaves idle.
        cap: processors that all jobs together do not exceed by growth; None for no limit.
        placement: rule for clusters: wf (most idle processors), cf (close to files), cm (fewest
            clusters) or fcm (fewest clusters, split by idle processors).
        max_tries: reject a job after more failed placements than this; None for no limit.
        poll: failed placements of a job within this many seconds count as one.
    """
    limits = Limits(threshold, initial, cap, placement)
    return Koala(Fpsma(), "pra", limits=limits, max_tries=max_tries, poll=poll)


def fpsma_pwa(
    *,
    initial: Initial = "lo",
    threshold: int = 0,
    cap: int | None = None,
    placement: PlacementRule = "wf",
    max_tries: int | None = None,
    poll: float = 0.0,
) -> Koala:
    """Return ``fpsma+pwa``: waiting jobs come first.

    Args:
        initial: the size that jobs start with.
        threshold: processors of each cluster that growth leaves idle.
        cap: processors that all jobs together do not exceed by growth; None for no limit.
        placement: rule for clusters: wf (most idle processors), cf (close to files), cm (fewest
            clusters) or fcm (fewest clusters, split by idle processors).
        max_tries: reject a job after more failed placements than this; None for no limit.
        poll: failed placements of a job within this many seconds count as one.
    """
    limits = Limits(threshold, initial, cap, placement)
    return Koala(Fpsma(), "pwa", limits=limits, max_tries=max_tries, poll=poll)


def egs(  # noqa: PLR0913 - the options of the strategy
    *,
    precedence: Precedence = "pra",
    initial: Initial = "lo",
    threshold: int = 0,
    cap: int | None = None,
    placement: PlacementRule = "wf",
    max_tries: int | None = None,
    poll: float = 0.0,
    redistribute: bool = False,
) -> Koala:
    """Return ``egs``: all jobs grow by the same number, all jobs shrink by the same number.

    Args:
        precedence: which jobs come first, running (pra) or waiting (pwa) jobs.
        initial: the size that jobs start with.
        threshold: processors of each cluster that growth leaves idle.
        cap: processors that all jobs together do not exceed by growth; None for no limit.
        placement: rule for clusters: wf (most idle processors), cf (close to files), cm (fewest
            clusters) or fcm (fewest clusters, split by idle processors).
        max_tries: reject a job after more failed placements than this; None for no limit.
        poll: failed placements of a job within this many seconds count as one.
        redistribute: offer declined processors to other jobs in the same round.
    """
    limits = Limits(threshold, initial, cap, placement)
    return Koala(
        Egs(redistribute=redistribute), precedence, limits=limits, max_tries=max_tries, poll=poll
    )


def egs_pra(
    *,
    initial: Initial = "lo",
    threshold: int = 0,
    cap: int | None = None,
    placement: PlacementRule = "wf",
    max_tries: int | None = None,
    poll: float = 0.0,
    redistribute: bool = False,
) -> Koala:
    """Return ``egs+pra``: running jobs come first.

    Args:
        initial: the size that jobs start with.
        threshold: processors of each cluster that growth leaves idle.
        cap: processors that all jobs together do not exceed by growth; None for no limit.
        placement: rule for clusters: wf (most idle processors), cf (close to files), cm (fewest
            clusters) or fcm (fewest clusters, split by idle processors).
        max_tries: reject a job after more failed placements than this; None for no limit.
        poll: failed placements of a job within this many seconds count as one.
        redistribute: offer declined processors to other jobs in the same round.
    """
    limits = Limits(threshold, initial, cap, placement)
    return Koala(
        Egs(redistribute=redistribute), "pra", limits=limits, max_tries=max_tries, poll=poll
    )


def egs_pwa(
    *,
    initial: Initial = "lo",
    threshold: int = 0,
    cap: int | None = None,
    placement: PlacementRule = "wf",
    max_tries: int | None = None,
    poll: float = 0.0,
    redistribute: bool = False,
) -> Koala:
    """Return ``egs+pwa``: waiting jobs come first.

    Args:
        initial: the size that jobs start with.
        threshold: processors of each cluster that growth leaves idle.
        cap: processors that all jobs together do not exceed by growth; None for no limit.
        placement: rule for clusters: wf (most idle processors), cf (close to files), cm (fewest
            clusters) or fcm (fewest clusters, split by idle processors).
        max_tries: reject a job after more failed placements than this; None for no limit.
        poll: failed placements of a job within this many seconds count as one.
        redistribute: offer declined processors to other jobs in the same round.
    """
    limits = Limits(threshold, initial, cap, placement)
    return Koala(
        Egs(redistribute=redistribute), "pwa", limits=limits, max_tries=max_tries, poll=poll
    )
