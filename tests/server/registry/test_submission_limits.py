"""The limits of submissions for each user."""

from __future__ import annotations

import pytest

from pliant.core.values.ids import JobId
from pliant.core.values.user_limits import UserLimit, UserLimits
from pliant.server.registry.submission_limits import SubmissionLimits


def limited(**limits: float) -> SubmissionLimits:
    jobs = SubmissionLimits()
    jobs.limits = UserLimits(UserLimit(**limits), {"vip": UserLimit()})  # type: ignore[arg-type]
    return jobs


def admit(jobs: SubmissionLimits, user: str, size: int = 1, now: float = 0.0) -> str:
    return jobs.admit(user, size, now, exempt=False)


def test_jobs_count_until_they_start() -> None:
    jobs = limited(pending_jobs=2)
    for number in (1, 2):
        assert admit(jobs, "ann") == ""
        jobs.add(JobId(number), "ann", 1)
        jobs.update(JobId(number), "ann", "PENDING")
    refusal = admit(jobs, "ann")
    assert "ann has 2 jobs" in refusal
    assert "2 (user_limits.pending_jobs)" in refusal
    assert "jobdel" in refusal
    assert admit(jobs, "bob") == ""
    jobs.update(JobId(1), "ann", "STARTING")
    assert admit(jobs, "ann") == ""
    jobs.update(JobId(1), "ann", "PENDING")  # requeued
    assert admit(jobs, "ann") != ""
    jobs.forget(JobId(2))
    assert admit(jobs, "ann") == ""


def test_bytes_of_jobs_that_have_not_started() -> None:
    jobs = limited(pending_bytes=100)
    jobs.restore({JobId(1): 60})
    jobs.update(JobId(1), "ann", "HELD")
    assert admit(jobs, "ann", 40) == ""
    assert "100 (user_limits.pending_bytes)" in admit(jobs, "ann", 41)
    jobs.update(JobId(1), "ann", "RUNNING")
    assert admit(jobs, "ann", 100) == ""


def test_submissions_per_second() -> None:
    jobs = limited(submissions_per_s=0.5)
    assert [admit(jobs, "ann", now=0.0) == "" for _ in range(6)] == [True] * 5 + [False]
    refusal = admit(jobs, "ann", now=1.0)
    assert "user_limits.submissions_per_s" in refusal
    assert "in 1.0 s" in refusal
    assert admit(jobs, "ann", now=2.1) == ""
    assert admit(jobs, "bob", now=1.0) == ""


@pytest.mark.parametrize("user", ["ann", "vip"])
def test_operators_and_users_of_their_own_limits(user: str) -> None:
    jobs = limited(pending_jobs=0)
    assert (admit(jobs, user) == "") == (user == "vip")
    assert jobs.admit(user, 1, 0.0, exempt=True) == ""
    jobs.limits = UserLimits(UserLimit(), {user: UserLimit(pending_jobs=0)})
    assert jobs.admit(user, 1, 0.0, exempt=True) != ""
