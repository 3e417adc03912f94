"""Jobs, arrays and tasks as users write them: ``17``, ``17_3``, ``17_[4-1000%50]``."""

from __future__ import annotations

from collections.abc import Mapping

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import Any

#: The values of a job that its title needs.
TITLE_FIELDS = ("id", "array_job", "array_task", "tasks")


#: Characters of a list of tasks in a table; the rest is shown as ``...``.
MAX_TASKS_SHOWN = 24


def shortened(tasks: str | None) -> str | None:
    """Cut a list of array tasks to `MAX_TASKS_SHOWN` characters; keep a limit such as ``%50``."""
    numbers, percent, limit = (tasks or "").partition("%")
    if len(numbers) <= MAX_TASKS_SHOWN:
        return tasks
    kept = numbers[:MAX_TASKS_SHOWN].rpartition(",")[0] or numbers[:MAX_TASKS_SHOWN]
    return f"{kept},...{percent}{limit}"


def title_of(number: int, array: int | None, task: int | None, tasks: str | None) -> str:
    """Return the name of a job as users write it: ``17``, or ``17_3`` for a task of an array.

    Args:
        number: the number of the job.
        array: the number of the array of which the job is a task, or None.
        task: the number of the task in this array, or None.
        tasks: the tasks of an array, such as ``1-5,7``, if a line of a list stands for several.
    """
    if array:
        return f"{array}_{task}"
    return f"{number}_[{tasks}]" if tasks else str(number)


def job_title(job: Mapping[str, Any]) -> str:
    """Return the name of a job as users write it, such as ``17_3``, from the server's record."""
    return title_of(*(job.get(name) for name in TITLE_FIELDS))  # type: ignore[arg-type]
