"""Tasks that are not jobs yet, as users see them: names, states and lines of lists."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.core.arrays.task_numbers import TaskNumbers, parse_array, parse_task_numbers
from pliant.core.model.jobs import Job, JobSpec, JobType
from pliant.core.model.lifecycle import JobState
from pliant.core.values.ids import JobId, task_job
from pliant.core.values.sizes import Sizes
from pliant.server.registry.array_tasks import lines_of_table, parse_job_name
from pliant.server.registry.job_program import Summary
from pliant.server.registry.status_cache import StatusCache
from pliant.server.support.user_request_error import UserRequestError

ARRAY = JobId(17)
SPEC = JobSpec(ARRAY, "sim", "ann", JobType.UNI, Sizes((1,)), 0.0, tasks=parse_array("1-9:2,20%3"))


@pytest.fixture
def status() -> StatusCache:
    """Return a cache with an array: task 1 is a job, 5 was cancelled, the others wait."""
    array = Job(SPEC, JobState.PENDING)
    assert array.progress is not None
    array.progress.pending = parse_task_numbers("3,7,9,20")
    array.progress.cancelled = parse_task_numbers("5")
    task = Job(replace(SPEC, id=task_job(ARRAY, 1), tasks=None, array=ARRAY), JobState.PENDING)
    cache = StatusCache()
    cache.publish_summary(ARRAY, Summary("/home/out-17_%a-%j", "/home", "./sim"))
    cache.publish_jobs([array, task])
    return cache


def test_names() -> None:
    assert parse_job_name("17") == (17, None)
    assert parse_job_name("17_3") == (17, TaskNumbers((range(3, 4),)))
    job, tasks = parse_job_name("17_[5-9:2,12]")
    assert tasks is not None
    assert (job, list(tasks)) == (17, [5, 7, 9, 12])


@pytest.mark.parametrize("name", ["", "17_", "_3", "17_[]", "17_[9-5]", "17_3_4", "17_[1,1]", "x"])
def test_wrong_names_are_refused(name: str) -> None:
    with pytest.raises(UserRequestError):
        parse_job_name(name)


@pytest.mark.parametrize(
    ("task", "state"), [(1, "PENDING"), (3, "PENDING"), (20, "PENDING"), (5, "CANCELLED")]
)
def test_every_task_has_an_entry(status: StatusCache, task: int, state: str) -> None:
    number = task_job(ARRAY, task)
    entry = status.entry(number)
    assert entry is not None
    assert (entry.info["state"], entry.final) == (state, state == "CANCELLED")
    assert (entry.info["array_job"], entry.info["array_task"]) == (17, task)
    assert entry.info["stdout"] == f"/home/out-17_{task}-{number}"


@pytest.mark.parametrize("task", [0, 2, 21])
def test_numbers_between_tasks_are_no_jobs(status: StatusCache, task: int) -> None:
    assert status.entry(task_job(ARRAY, task)) is None


def test_lines_of_a_table(status: StatusCache) -> None:
    info = status.job(ARRAY)
    assert info is not None
    lines = lines_of_table(info, with_ended=True)
    assert [(line["tasks"], line["state"]) for line in lines] == [
        ("3,7,9,20%3", "PENDING"),
        ("5", "CANCELLED"),
    ]
    assert len(lines_of_table(info, with_ended=False)) == 1


def test_pending_tasks_count_for_the_limits_of_their_user(status: StatusCache) -> None:
    status.submission_limits.limits = replace(
        status.submission_limits.limits,
        default=replace(status.submission_limits.limits.default, pending_jobs=6),
    )
    limits = status.submission_limits
    assert limits.admit("ann", 0, 0.0, exempt=False) == ""
    assert "2 tasks" in limits.admit("ann", 0, 0.0, exempt=False, jobs=2)
