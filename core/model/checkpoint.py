"""Checkpoints of a job: its last checkpoint, and its open suspension, which takes a new one.

``transitions/suspension_steps.py`` and ``handlers/suspend_resume_requeue.py`` work on these values.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pliant.core.values.ids import JobId, ResizeId


class SaveStage(StrEnum):
    """The stages of a suspension, from the order to the exit of the processes."""

    #: The application will save at its next safe point.
    ORDERED = "ordered"
    #: The application is at its safe point and writes. The deadline runs.
    SAVING = "saving"
    #: The server withdrew the order. The application has not confirmed it yet.
    WITHDRAWING = "withdrawing"
    #: The checkpoint is complete. The processes are ending.
    LEAVING = "leaving"


class SaveProgress(StrEnum):
    """The progress of a checkpoint, as the application reports it."""

    #: The application has the order and waits for a safe point.
    HELD = "held"
    BEGUN = "begun"
    SAVED = "saved"
    FAILED = "failed"
    #: The application had not begun, and will not.
    DECLINED = "declined"


class SaveStep(StrEnum):
    """A step of a suspension that the server orders from the application, such as to save."""

    #: Save at the next safe point, then wait for LEAVE.
    SAVE = "save"
    #: Ignore the order, unless saving has begun.
    KEEP = "keep"
    #: End: the server knows that everything is saved.
    LEAVE = "leave"


@dataclass(slots=True)
class Saving:
    """The open suspension of a job: its stage, its cause, and whether the job is requeued."""

    #: Suspensions and resizes are numbered in one sequence.
    number: ResizeId
    stage: SaveStage
    #: When the suspension was ordered, in seconds since the epoch.
    since: float
    #: Who ordered it: a text for users.
    cause: str
    #: Deadline of the present stage, in seconds since the epoch.
    due: float
    #: Whether a strategy ordered it. That strategy may start the job again.
    by_strategy: bool = False
    #: Whether the job is requeued even if it cannot be saved.
    requeues: bool = False
    #: When the application reached its safe point. None if it has not.
    begun: float | None = None
    #: Why the suspension was withdrawn, or why the processes of the saved job are killed again.
    reason: str = ""
    #: Whether the job is requeued when it is saved and its processes have exited. If it cannot be
    #: saved, it continues.
    returns: bool = False
    #: The waiting job that will get the processors. None if no particular one.
    serves: JobId | None = None


class Checkpoint(NamedTuple):
    """The last checkpoint of a job."""

    #: Seconds since the epoch.
    time: float
    #: The iteration at which the next run continues.
    iteration: int
    #: The number of processors of the job at that time.
    size: int
    bytes: int
    #: Work that the checkpoint contains, in seconds on one processor.
    done: float
    #: Seconds of the time limit that were used up at that time.
    used_s: float


@dataclass(frozen=True, slots=True)
class Relocation:
    """The last move of a job to other nodes, which a strategy ordered (``Plan.migrations``)."""

    #: The nodes that the job leaves, and those that it gets.
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    #: A text for users.
    reason: str
    #: When it was ordered, in seconds since the epoch.
    ordered: float
    #: The bytes that the job demanded on its old nodes, as they last reported. 0 if unknown.
    demand: float = 0.0
    #: Seconds from the order until the job had left its old nodes and its processes were up on the
    #: new ones. None before that.
    seconds: float | None = None
    #: The processor that a malleable job grows onto, before it gives up its old one. None if it
    #: ends and starts again instead.
    onto: int | None = None
    #: Bytes of distributed data that a growth and the following shrink have moved.
    bytes: int = 0
