"""Typed identifiers.

``run`` counts the runs of a job, ``epoch`` the allocations of a run, ``generation`` the starts of
the server.
"""

from typing import NewType

#: A job. Numbers start with 1 and are never reused.
JobId = NewType("JobId", int)
#: A resize transaction and its negotiation, or a suspension. Numbers start with 1.
ResizeId = NewType("ResizeId", int)
#: A call of the strategy.
CycleId = NewType("CycleId", int)
#: A node: the name under which its controller registered.
NodeName = NewType("NodeName", str)

#: Stands for the start of a run in place of a resize.
FIRST_START = ResizeId(0)
#: Stands for the lack of a job.
NO_JOB = JobId(0)


def task_job(array: JobId, task: int) -> JobId:
    """Return the job number of an array's task: the array's own number + 1 + the task number."""
    return JobId(array + 1 + task)
