"""Arrays and tasks as users see them: names such as ``17_3``, and the values in lists of jobs."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from pliant.core.arrays.task_numbers import TaskNumbers, parse_task_numbers
from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.support.plural import plural
from pliant.core.values.ids import JobId
from pliant.server.registry.job_program import PLACE_MARKS, has_mark, name_of_task
from pliant.server.support.user_request_error import UserRequestError

Info = Mapping[str, Any]

_NAME = re.compile(r"([0-9]{1,18})(?:_(?:([0-9]{1,9})|\[([0-9,:-]+)\]))?")
#: Values of an array that its tasks do not have.
_OF_ARRAY = frozenset({"array", "tasks", "dependency"})


class JobName(NamedTuple):
    """A job as users write it: ``17``, ``17_3``, or several tasks: ``17_[5-10]``."""

    job: JobId
    #: The named tasks of the array. None for the whole job.
    tasks: TaskNumbers | None = None


def parse_job_name(text: str, field: str = "id") -> JobName:
    """Return the job or the tasks that a text names.

    Raises:
        UserRequestError: the text is not in this form; the error names ``field``.
    """
    match = _NAME.fullmatch(text)
    if match is None:
        raise UserRequestError(
            f"{field}: {text!r:.40} is not the number of a job; write one as in 12, 17_3 or "
            "17_[5-10]",
            field=field,
        )
    listed = match[2] or match[3]
    try:
        tasks = None if listed is None else parse_task_numbers(listed)
        return JobName(JobId(int(match[1])), tasks)
    except ValueError as error:
        raise UserRequestError(f"{field}: {text!r:.40}: {error}", field=field) from None


@lru_cache(maxsize=128)
def _parse_stored_tasks(text: str) -> TaskNumbers:
    """Parse a list of task numbers that this server has written itself, such as ``0-3,7``.

    Unlike a list from a user, it may be of any length.
    """
    return parse_task_numbers(text, max_text=None)


def tasks_of_array(info: Info) -> TaskNumbers | None:
    """Return the numbers of an array's tasks; None if the job is no array."""
    array = info.get("array")
    return None if array is None else _parse_stored_tasks(array["numbers"])


def task_fields(job: int | None, array: int | None) -> dict[str, int]:
    """Return the fields that name the array and the task of a job; empty if the job is no task.

    Args:
        job: the number of the job.
        array: the number of its array; None or 0 if the job is no task.
    """
    if not array or job is None:
        return {}
    return {"array_job": array, "array_task": job - array - 1}


def title(info: Info) -> str:
    """Return the number of a job as users write it: ``17``, or ``17_3`` for a task."""
    if info.get("array_job"):
        return f"{info['array_job']}_{info['array_task']}"
    return str(info["id"])


def array_fields(job: Job) -> dict[str, Any]:
    """Return the values of a job that only arrays and tasks have.

    A task has ``array_job`` and ``array_task``. An array has ``tasks`` with the tasks that have not
    become jobs yet, and ``array`` with the number of tasks in each state.
    """
    progress, spec = job.progress, job.spec
    if progress is None or spec.tasks is None:
        return task_fields(job.id, spec.array)
    limit = f"%{spec.tasks.limit}" if spec.tasks.limit and progress.pending else ""
    fields: dict[str, Any] = {
        "tasks": f"{progress.pending}{limit}",
        "array": {
            "tasks": str(spec.tasks),
            "numbers": str(spec.tasks.numbers),
            "count": len(spec.tasks.numbers),
            "limit": spec.tasks.limit,
            "pending": len(progress.pending),
            "running": progress.running,
            "started": len(progress.open) + progress.ended,
            "ended": progress.ended,
            "failed": progress.failed,
            "cancelled": progress.cancelled_jobs + len(progress.cancelled),
            "cancelled_tasks": str(progress.cancelled),
        },
    }
    if not job.final and not progress.pending:
        fields["state"] = JobState.RUNNING.value
    if job.state is JobState.PENDING and job.wait is None:
        fields["reason"] = _reason(job)
    return fields


def _reason(array: Job) -> str:
    """Return how many tasks of an array run, have ended and have failed, as a sentence.

    Users see it as the reason why the other tasks wait. It is empty if the job is no array.
    """
    progress, tasks = array.progress, array.spec.tasks
    if progress is None or tasks is None:
        return ""
    count = len(tasks.numbers)
    parts = [f"{progress.running} of {plural(count, 'task')} run"]
    if progress.ended:
        parts.append(f"{progress.ended} have ended")
    if progress.failed:
        parts.append(f"{progress.failed} of them failed")
    if tasks.limit is not None and progress.pending:
        parts.append(f"at most {tasks.limit} may run at once")
    return ", ".join(parts)


def info_of_pending_task(info: Info, number: JobId) -> Info | None:
    """Return the values that users see of a task that has not become a job, from its array.

    Such a task is pending, or was cancelled before it started. None if the array has no task of
    this number, or the task has become a job.

    Args:
        info: the values of the array.
        number: the job number that is reserved for the task.
    """
    numbers, task = tasks_of_array(info), number - info["id"] - 1
    if numbers is None or task not in numbers:
        return None
    state = info["state"]
    if task in _parse_stored_tasks(info["array"]["cancelled_tasks"]):
        state, reason = JobState.CANCELLED.value, "cancelled before it started"
    elif info["array"]["pending"] and task in _parse_stored_tasks(info["tasks"].partition("%")[0]):
        reason = info["reason"] if state != JobState.PENDING else "waits for earlier tasks"
    else:
        return None
    stdout = info["stdout"]
    return {
        **{key: value for key, value in info.items() if key not in _OF_ARRAY},
        "id": number,
        **task_fields(number, info["id"]),
        "state": state,
        "reason": reason,
        "stdout": name_of_task(stdout, info["id"], task, by_node=has_mark(stdout, PLACE_MARKS)),
    }


def lines_of_table(info: Info, *, with_ended: bool) -> list[Info]:
    """Return the lines for a job in a table of jobs: one line, or up to two for an array.

    An array has one line for its pending tasks, if there are any. With ``with_ended``, it has one
    for tasks that were cancelled before they became jobs.
    """
    array = info.get("array")
    if array is None:
        return [info]
    lines = [info] if array["pending"] else []
    if with_ended and array["cancelled_tasks"]:
        cancelled = {
            "state": JobState.CANCELLED.value,
            "tasks": array["cancelled_tasks"],
            "start": None,
            "exit_code": None,
            "reason": "cancelled before they started",
        }
        lines.append({**info, **cancelled})
    return lines


class ArrayIndex:
    """Finds the array to which the job number of a task belongs.

    The caller must hold a lock of its own, because there is none here.
    """

    def __init__(self) -> None:
        self._arrays: list[JobId] = []

    def add(self, array: JobId) -> None:
        """Add an array, unless it is known."""
        place = bisect_left(self._arrays, array)
        if place == len(self._arrays) or self._arrays[place] != array:
            insort(self._arrays, array)

    def forget(self, job: JobId) -> None:
        """Remove a job if it is an array."""
        place = bisect_left(self._arrays, job)
        if place < len(self._arrays) and self._arrays[place] == job:
            del self._arrays[place]

    def array_candidate(self, number: JobId) -> JobId | None:
        """Return the last array whose number is lower than this number; None if there is none.

        If the number belongs to a task, it is a task of this array.
        """
        place = bisect_left(self._arrays, number)
        return self._arrays[place - 1] if place else None
