"""``steepest-ascent``: processors go to the jobs that they speed up most.

The greedy rule of accumulated speedup (Hungershoefer, as described in Ghafoor 2007, 2.2). All jobs
that fit at their smallest sizes are admitted by first fit in order of arrival. Then one step at a
time goes to the job whose speedup rises most per processor. The rule uses the speedup models of the
jobs or, for a running job, the speedup that its application has measured. For concave models and
sizes without gaps, no other allocation has a larger sum of speedups.

A resize costs time, so running jobs keep their sizes unless a job starts or the sum of their
speedups rises by more than ``min-improvement``.

Choice where the source is silent: of equally steep steps, a step that gives a job back what it
already has goes first, so that few jobs are resized; then the order of start decides.
"""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from pliant.core.model.views_and_plans import Availability, Plan, View, WaitingJob
from pliant.core.values.ids import JobId
from pliant.core.values.sizes import Sizes
from pliant.core.values.speedup import Speedup
from pliant.strategies.interface.base import Strategy
from pliant.strategies.policies.availability_estimate import beyond_minima, now_or_later, too_few
from pliant.strategies.policies.placement import place


@dataclass(frozen=True, slots=True)
class Climber:
    """A job whose target size is raised in steps: its sizes, speedup model and present size."""

    id: JobId
    sizes: Sizes
    speedup: Speedup
    #: Its present size; 0 if it does not run.
    size: int = 0


def climb_to_sizes(climbers: list[Climber], left: int, min_gain: float = 0.0) -> dict[JobId, int]:
    """Return a target size for each job, starting from the minima and raising one size at a time.

    The step that raises a job's speedup most per processor comes first. The result is reached when
    ``left`` processors are used up, or no step fits or pays.

    Args:
        climbers: the jobs; their order decides between equally steep steps.
        left: the number of processors beyond all minima.
        min_gain: steps that raise the speedup by no more than this per processor are not taken.
    """
    target = {climber.id: climber.sizes.min for climber in climbers}
    heap = [
        step
        for place_, climber in enumerate(climbers)
        if (step := _step(climber, climber.sizes.min, place_)) is not None
    ]
    heapify(heap)
    while left > 0 and heap:
        steepness, _, place_, above = heappop(heap)
        if -steepness <= min_gain:
            break
        climber = climbers[place_]
        taken = above - target[climber.id]
        if taken <= left:
            left -= taken
            target[climber.id] = above
            following = _step(climber, above, place_)
            if following is not None:
                heappush(heap, following)
    return target


def _step(climber: Climber, size: int, place_: int) -> tuple[float, bool, int, int] | None:
    """Return the next step of a job as a heap entry; None if it is at its maximum.

    The entry is (-gain per processor, whether the new size exceeds the present one, place of the
    job, new size), so the heap yields the steepest step first.
    """
    above = climber.sizes.smallest_above(size)
    if not above:
        return None
    gain = (climber.speedup(above) - climber.speedup(size)) / (above - size)
    return (-gain, above > climber.size, place_, above)


class SteepestAscent(Strategy):
    """The strategy that seeks the largest sum of the jobs' speedups, raising one size at a time.

    Args:
        min_gain: steps that raise the speedup by no more than this per processor are not taken.
        min_improvement: if no job starts, running jobs are resized only if the sum of their
            speedups rises by more than this fraction of it.
    """

    def __init__(self, *, min_gain: float = 0.0, min_improvement: float = 0.02) -> None:
        for name, value in (("min-gain", min_gain), ("min-improvement", min_improvement)):
            if not value >= 0:
                raise ValueError(f"{name} {value:g} is below 0")
        self._min_gain = min_gain
        self._min_improvement = min_improvement

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        """Return when the job could start: now if its smallest size fits, otherwise an estimate."""
        return now_or_later(job, view, beyond_minima(view))

    def allocate_processors(self, view: View) -> Plan:
        """Return a plan: admit jobs by first fit, climb by speedups, resize if that pays off."""
        left = beyond_minima(view)
        admitted: list[WaitingJob] = []
        for job in view.waiting:
            if job.sizes.min <= left:
                admitted.append(job)
                left -= job.sizes.min
        running = [
            Climber(job.id, job.sizes, job.measured or job.speedup, job.size)
            for job in view.running
            if job.resizable
        ]
        new = [Climber(job.id, job.sizes, job.speedup) for job in admitted]
        targets = climb_to_sizes([*running, *new], left, self._min_gain)
        if not admitted and not self._better(running, targets):
            return Plan(behind=too_few(max(0, left)))
        placer = place(view, targets, [(job, targets[job.id]) for job in admitted])
        return placer.plan(behind=too_few(max(0, left)))

    def _better(self, running: list[Climber], targets: dict[JobId, int]) -> bool:
        """Return whether resizing jobs to ``targets`` sufficiently raises their total speedup.

        It must rise by more than the fraction that the option ``min-improvement`` sets.
        """
        present = sum(job.speedup(job.size) for job in running)
        future = sum(job.speedup(targets[job.id]) for job in running)
        return future > present * (1 + self._min_improvement)
