"""The present status of a job's profit contract: its promised start, end and profit."""

from collections.abc import Iterator

from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import ACTIVE_STATES
from pliant.core.values.profit_contract import present_profit


def expected_end(job: Job) -> float | None:
    """Return the expected end of a job in seconds since the epoch; None if unknown.

    A waiting job with a promised start is expected to meet its deadline: that is the promise.
    """
    if job.final:
        return job.end
    if job.state in ACTIVE_STATES:
        return job.expected_end
    contract = job.spec.contract
    start = job.promise.start if job.promise is not None else None
    if contract is not None and start is not None:
        estimate = job.spec.estimate_s or 0.0
        return min(start + estimate, contract.deadline(job.spec.arrival))
    return None


def profit_now(job: Job, now: float) -> float | None:
    """Return the profit of a job if it ends as expected; None if that is unknown."""
    contract = job.spec.contract
    if contract is None:
        return None
    return present_profit(
        contract,
        state=job.state.value,
        submit=job.spec.arrival,
        end=expected_end(job),
        promised=job.promise is not None,
        now=now,
    )


def lines(job: Job, now: float) -> Iterator[str]:
    """Yield the lines that ``jobctl why`` shows about a job's contract; none without one."""
    contract = job.spec.contract
    if contract is None:
        return
    left = contract.deadline(job.spec.arrival) - now
    when = f"is in {left:.1f} s" if left >= 0 else f"was {-left:.1f} s ago"
    if job.final:  # the deadline no longer matters
        when = "was"
    since = "submission" if job.spec.begin is None else "begin time"
    after = f"{contract.deadline_s:g} s after its {since}"
    full_s = contract.soft * contract.deadline_s
    penalty = f", a penalty of {contract.penalty:g} after it" if contract.penalty else ""
    yield (
        f"contract: its deadline {when} {after if job.final else f'({after})'}; "
        f"profit {contract.profit:g} if it ends within {full_s:g} s, 0 at the deadline{penalty}"
    )
    if job.promise is not None:
        start = job.promise.start
        later = start is not None and job.start is None and start > now
        yield f"promise: {job.promise.text}" + (
            f", to start in {start - now:.1f} s" if later and start is not None else ""
        )
    end, profit = expected_end(job), profit_now(job, now)
    if profit is None or end is None:
        yield "its end cannot be foreseen: it has no estimate, or no start was promised"
    elif job.final:
        yield f"it brought a profit of {profit:g}"
    else:
        at = f"in {end - now:.1f} s" if end >= now else f"{now - end:.1f} s ago, and has not come"
        yield f"its end is expected {at}; that is worth {profit:g} at present"
