"""Answers that several strategies share: when a job could start, and why it waits."""

from dataclasses import replace

from pliant.core.model.views_and_plans import Availability, View, WaitingJob
from pliant.core.model.wait_reasons import WaitCode, WaitReason
from pliant.core.support.plural import plural
from pliant.core.values.processors import count
from pliant.strategies.policies.queue_order import queue_with


def now_or_later(job: WaitingJob, view: View, within_reach: int) -> Availability:
    """Return when a job could start: now if processors suffice, otherwise an estimated time.

    The answer has no time if the running jobs state no estimates, and is a refusal if the job is
    larger than the cluster.

    Args:
        job: the job in question.
        view: the cluster.
        within_reach: the number of processors that the strategy could give a new job now.
    """
    if job.sizes.min > view.total:
        return Availability(False, None, 0, too_wide(job, view.total))
    if job.sizes.min <= within_reach:
        return Availability(
            True, view.now, job.sizes.largest_at_most(within_reach), "processors are available"
        )
    reach = within_reach
    ends = [(end, run.id, run.lo) for run in view.running if (end := run.expected_end) is not None]
    for end, _, lo in sorted(ends):
        reach += lo
        if job.sizes.min <= reach:
            start = max(end, view.now)
            return Availability(
                True, start, job.sizes.largest_at_most(reach), "when running jobs end"
            )
    return Availability(True, None, job.sizes.min, "the running jobs state no estimates")


def too_wide(job: WaitingJob, most: int, whose: str = "cluster") -> str:
    """Return why a job can never run: its smallest size is more than ``most`` processors.

    ``whose`` names what has these ``most`` processors, such as "cluster".
    """
    return f"needs {plural(job.sizes.min, 'processor')}, the {whose} has {most}"


def too_few(reach: int) -> WaitReason:
    """Return the wait reason that a job needs more than the ``reach`` processors it could get."""
    return WaitReason(WaitCode.PROCESSORS, live=(("reach", reach),))


def processors_needed_text(job: WaitingJob, reach: int) -> str:
    """Return the text for users that a job waits for more processors than it could get.

    ``reach`` is the number that it could get. The server stores the text again when this changes.
    """
    return f"waits for at least {plural(job.sizes.min, 'processor')} (available to it now: {reach})"


def promised_total(view: View) -> int:
    """Return how many processors are reserved for waiting jobs."""
    return sum(count(job.processors) for job in view.promised)


def beyond_minima(view: View) -> int:
    """Return how many processors would be left if all running jobs shrank to their minima.

    Processors that are reserved for waiting jobs are not counted as left.
    """
    return view.total - sum(job.lo for job in view.running) - promised_total(view)


def with_job(view: View, job: WaitingJob) -> View:
    """Return a copy of the view in which ``job`` has been submitted."""
    return replace(view, waiting=tuple(queue_with(view.waiting, job)))
