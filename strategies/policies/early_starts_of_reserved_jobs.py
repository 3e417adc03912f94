"""Starting jobs with reserved processors (agreements) on other processors that are free earlier.

The option ``agreement`` chooses the rule. ``direct``: a job starts on exactly its reserved
processors; the core does this without the strategy. ``pool``: jobs start on any reserved or free
processors, in order of arrival. ``steal``: a job starts on free processors and those reserved for
later jobs. A job that loses a reserved processor gets in exchange one that was reserved for the
starting job and is not free yet, so no job has fewer reserved processors than before.
"""

from typing import Literal

from pliant.core.model.processor_choice import first_fit
from pliant.core.model.views_and_plans import PromisedJob, View
from pliant.core.values.ids import JobId
from pliant.core.values.processors import NONE, ProcessorMap, count, from_indices
from pliant.strategies.policies.placement import Placer, usable_processors

Agreement = Literal["direct", "pool", "steal"]


def start_promised(view: View, placer: Placer, agreement: Agreement) -> None:
    """Start all jobs with reservations that can start, and update the other reservations.

    The publication of the strategies (arXiv 2602.17318) does not say which processors a job uses.
    Here it uses its own reserved processors first, then free ones, then those of other jobs, the
    latest job first.
    """
    ready = released(view)
    promised = sorted(view.promised, key=lambda job: (job.arrival, job.id))
    reserved = {job.id: job.processors for job in promised}
    started: set[JobId] = set()
    for place, job in enumerate(promised):
        others = promised[place + 1 :] if agreement == "steal" else promised
        lenders = [o.id for o in reversed(others) if o.id not in started and o.id != job.id]
        taken = _exchange(job.id, lenders, reserved, ready, placer.free)
        if taken:
            placer.start_on(job.id, taken)
            started.add(job.id)
    for job in promised:
        if job.id not in started and reserved[job.id] != job.processors:
            placer.start_on(job.id, reserved[job.id])


def _exchange(
    job: JobId,
    lenders: list[JobId],
    reserved: dict[JobId, ProcessorMap],
    ready: ProcessorMap,
    free: ProcessorMap,
) -> ProcessorMap:
    """Return the processors on which a job with reservations starts; none if there are too few.

    It may take processors that are reserved for other jobs, and gives them processors of its own
    reservation in exchange, which are not free yet.

    Args:
        job: the job.
        lenders: the jobs from whose reservations it may take processors, first to last.
        reserved: the reserved processors of all jobs. It is changed if the job starts.
        ready: the reserved processors that are certainly free.
        free: the free processors that are not reserved.
    """
    own = reserved[job] & ready
    left = reserved[job] & ~own
    missing = count(left)
    if missing > count(free) + sum(count(reserved[lender] & ready) for lender in lenders):
        return NONE
    taken = own | first_fit(free, min(missing, count(free)))
    for lender in lenders:
        lent = reserved[lender] & ready
        lent = first_fit(lent, min(count(lent), count(reserved[job]) - count(taken)))
        back = first_fit(left, count(lent))
        reserved[lender] = reserved[lender] & ~lent | back
        left &= ~back
        taken |= lent
    return taken


def released(view: View) -> ProcessorMap:
    """Return the reserved processors that are certainly free.

    While the leaving processes of a donor exit, their processors are in no job's allocation but not
    free. As long as one of a job's donors may be in that state, none of the job's reserved
    processors count as free.
    """
    result: ProcessorMap = NONE
    donors = {job.id: job for job in view.running}
    for job in view.promised:
        if not any(_may_be_leaving(job, donors[donor].ranks) for donor in _busy(job, view)):
            result |= job.processors
    for running in view.running:
        result &= ~from_indices(running.ranks)
    return result & usable_processors(view.nodes)


def _busy(job: PromisedJob, view: View) -> list[JobId]:
    return [run.id for run in view.running if run.id in job.donors and not run.resizable]


def _may_be_leaving(job: PromisedJob, ranks: tuple[int, ...]) -> bool:
    return not job.processors & from_indices(ranks)
