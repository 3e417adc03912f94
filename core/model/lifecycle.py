"""The life cycle of a job as a table: which state may follow which, and why.

The diagram in ``docs/architecture.md`` is generated from this table
(``python -m pliant.core.model.lifecycle``).
"""

from collections.abc import Sequence
from enum import StrEnum


class JobState(StrEnum):
    """The state of a job."""

    #: Held until its user or an operator releases it.
    HELD = "HELD"
    #: Waits in the queue for processors.
    PENDING = "PENDING"
    #: It has processors. Its processes are being started.
    STARTING = "STARTING"
    #: Its processes run.
    RUNNING = "RUNNING"
    #: Runs, with a resize or a suspension under way.
    ADAPTING = "ADAPTING"
    #: Ending. Its processors are free only when its processes have exited.
    COMPLETING = "COMPLETING"
    #: Saved at a safe point. It has no processors.
    SUSPENDED = "SUSPENDED"
    #: Each process of the last allocation ended with exit code 0.
    COMPLETED = "COMPLETED"
    #: A process ended with another code or by a signal, or a start or a resize failed.
    FAILED = "FAILED"
    #: Ended by its user or an operator.
    CANCELLED = "CANCELLED"
    #: Ended because it reached its time limit.
    TIMEOUT = "TIMEOUT"
    #: One of its nodes was lost.
    NODE_FAIL = "NODE_FAIL"
    #: The strategy will never start it.
    REJECTED = "REJECTED"


_S = JobState

#: The allowed changes of state, each with its cause as shown in the diagram.
TRANSITIONS: dict[tuple[JobState, JobState], str] = {
    (_S.HELD, _S.PENDING): "release",
    (_S.HELD, _S.CANCELLED): "cancel",
    (_S.PENDING, _S.HELD): "hold",
    (_S.PENDING, _S.STARTING): "allocate",
    (_S.PENDING, _S.REJECTED): "refused by the strategy, or its dependency cannot be met",
    (_S.PENDING, _S.CANCELLED): "cancel",
    (_S.PENDING, _S.COMPLETED): "an array whose tasks are COMPLETED",
    (_S.PENDING, _S.FAILED): "an array of which a task failed",
    (_S.STARTING, _S.RUNNING): "processes up",
    (_S.STARTING, _S.COMPLETING): "ends or fails",
    (_S.STARTING, _S.PENDING): "requeue",
    (_S.RUNNING, _S.ADAPTING): "resize agreed",
    (_S.RUNNING, _S.COMPLETING): "ends or is ended",
    (_S.ADAPTING, _S.RUNNING): "committed or rolled back",
    (_S.ADAPTING, _S.COMPLETING): "ends or is ended",
    (_S.ADAPTING, _S.SUSPENDED): "saved and gone",
    (_S.SUSPENDED, _S.PENDING): "resume",
    (_S.SUSPENDED, _S.CANCELLED): "cancel",
    (_S.COMPLETING, _S.COMPLETED): "gone, code 0",
    (_S.COMPLETING, _S.FAILED): "gone, other code",
    (_S.COMPLETING, _S.CANCELLED): "gone, cancelled",
    (_S.COMPLETING, _S.TIMEOUT): "gone, over time",
    (_S.COMPLETING, _S.NODE_FAIL): "gone with its node",
    (_S.COMPLETING, _S.PENDING): "requeue",
}

#: States of jobs that have ended.
FINAL_STATES = frozenset(
    {_S.COMPLETED, _S.FAILED, _S.CANCELLED, _S.TIMEOUT, _S.NODE_FAIL, _S.REJECTED}
)
#: A job in one of these holds processors.
ACTIVE_STATES = frozenset({_S.STARTING, _S.RUNNING, _S.ADAPTING, _S.COMPLETING})
#: A job in one of these can be offered another size.
RESIZABLE_STATES = frozenset({_S.RUNNING})


class IllegalStepError(Exception):
    """A change of a job's state that the table of allowed changes does not contain. This is a bug.

    The message has the job's history.
    """

    def __init__(self, job: int, start: JobState, finish: JobState, story: Sequence[str]) -> None:
        self.job, self.start, self.finish, self.story = job, start, finish, tuple(story)
        super().__init__(
            f"job {job}: {start} -> {finish} is not a legal step; its history: "
            + (" | ".join(story) or "empty")
        )


def diagram() -> str:
    """Return the table of allowed changes of a job's state as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> PENDING: submit", "    [*] --> HELD: submit --hold"]
    lines += [f"    {a} --> {b}: {cause}" for (a, b), cause in TRANSITIONS.items()]
    lines += [f"    {state} --> [*]" for state in JobState if state in FINAL_STATES]
    return "\n".join(lines)


if __name__ == "__main__":
    print(diagram())
