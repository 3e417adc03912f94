"""What becomes of a job with a contract: its promise is stored, and people can see it."""

from __future__ import annotations

import pytest

from corekit.rig import Rig
from pliant.core import events
from pliant.core.model.jobs import JobSpec, JobType, Promise
from pliant.core.model.lifecycle import JobState
from pliant.core.state.profit_contract_status import expected_end, lines, profit_now
from pliant.core.values.ids import JobId
from pliant.core.values.profit_contract import Contract
from pliant.core.values.sizes import parse_sizes


def submit(
    rig: Rig, number: int, deadline: float | None, estimate: float = 10.0, sizes: str = "4"
) -> None:
    """Submit a job; without a deadline it has no contract."""
    contract = None if deadline is None else Contract(deadline, 100.0, penalty=7.0)
    spec = JobSpec(
        JobId(number), "a", "ada", JobType.MPI, parse_sizes(sizes), rig.now,
        estimate_s=estimate, contract=contract,
    )  # fmt: skip
    rig.do(events.JobSubmitted(spec))


@pytest.mark.parametrize("strategy", ["profit-simple", "profit-lazy"])
def test_a_job_that_starts_at_once_has_its_promise_stored(strategy: str) -> None:
    rig = Rig({"n1": 4}, strategy)
    submit(rig, 1, 30.0)
    job = rig.core.jobs[JobId(1)]
    assert job.state is JobState.STARTING
    assert job.promise == Promise("accepted", 1000.0)
    assert rig.kinds(1).index("job.accepted") < rig.kinds(1).index("job.started")
    rig.restart()
    job = rig.core.jobs[JobId(1)]
    assert job.promise == Promise("accepted", 1000.0)


def test_a_promise_for_later_survives_a_restart_and_is_shown() -> None:
    rig = Rig({"n1": 4}, "profit-lazy")
    submit(rig, 1, 20.0)
    submit(rig, 2, 60.0)
    job = rig.core.jobs[JobId(2)]
    assert job.state is JobState.PENDING
    assert job.promise is not None
    assert job.promise.start == 1020.0
    rig.restart()
    job = rig.core.jobs[JobId(2)]
    assert job.promise is not None
    assert job.promise.start == 1020.0
    told = "\n".join(lines(job, 1000.0))
    assert "contract: its deadline is in 60.0 s" in told
    assert "promise: accepted; starts when job 1 ends, to start in 20.0 s" in told
    assert (expected_end(job), profit_now(job, 1000.0)) == (1030.0, 100.0)


def test_what_is_refused_says_why_and_brings_nothing() -> None:
    rig = Rig({"n1": 4}, "profit-simple")
    submit(rig, 1, 30.0)
    submit(rig, 2, 12.0)
    job = rig.core.jobs[JobId(2)]
    assert (job.state, job.reason) == (JobState.REJECTED, "deadline cannot be met")
    assert profit_now(job, rig.now) == 0.0
    told = lines_of(rig, 2)
    assert told[-1] == "it brought a profit of 0"
    assert "contract: its deadline was 12 s after its submission; " in told[0]


def test_a_job_without_a_contract_has_none_to_show() -> None:
    rig = Rig({"n1": 4}, "fcfs")
    submit(rig, 1, None)
    assert lines_of(rig, 1) == []
    assert profit_now(rig.core.jobs[JobId(1)], rig.now) is None


def lines_of(rig: Rig, number: int) -> list[str]:
    return list(lines(rig.core.jobs[JobId(number)], rig.now))
