"""What is known of a job's checkpoints: the last one, and one that is being taken for a suspension.

Plain values; ``core.saving`` and ``core.suspension`` work on them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pliant.core.values.ids import JobId, ResizeId


class SaveStage(StrEnum):
    """How far a suspension is."""

    #: Ordered: the application saves at its next safe point.
    ORDERED = "ordered"
    #: The application is at its safe point and writes; the deadline runs.
    SAVING = "saving"
    #: Taken back; the application has not yet said whether it had begun.
    WITHDRAWING = "withdrawing"
    #: Saved: its processes are leaving.
    LEAVING = "leaving"


class SaveWord(StrEnum):
    """What an application says of a checkpoint."""

    #: It is in hand and waits for a safe point.
    HELD = "held"
    BEGUN = "begun"
    SAVED = "saved"
    FAILED = "failed"
    #: It had not begun and will not.
    DECLINED = "declined"


class SaveStep(StrEnum):
    """What the server wants of an application that is to be suspended."""

    #: Save at the next safe point, then wait for LEAVE.
    SAVE = "save"
    #: Go on as if nothing had been said, unless it has begun.
    KEEP = "keep"
    #: It is known that everything is saved: leave.
    LEAVE = "leave"


@dataclass(slots=True)
class Saving:
    """An open suspension of one job."""

    #: From the same count as resizes.
    number: ResizeId
    stage: SaveStage
    #: When it was ordered, seconds since the epoch.
    since: float
    #: Who wants it, for people.
    cause: str
    #: When its present stage is overdue, seconds since the epoch.
    due: float
    #: Whether a strategy wants it, which may then start the job again.
    by_strategy: bool = False
    #: Whether the job goes back into the queue at once, whatever becomes of the save.
    requeues: bool = False
    #: When the application was at its safe point; None: not yet.
    begun: float | None = None
    #: Why it was taken back.
    reason: str = ""
    #: Whether the job is queued again once its processes are gone; if the save fails, it runs on.
    returns: bool = False
    #: The waiting job that is to have the processors; None: none in particular.
    serves: JobId | None = None


class Checkpoint(NamedTuple):
    """The last checkpoint of a job."""

    #: Seconds since the epoch.
    time: float
    #: Iteration of the loop that it continues at.
    iteration: int
    #: Processors it was taken on.
    size: int
    bytes: int
    #: Work that need not be done again, in seconds on one processor.
    done: float
    #: Seconds of the job's time limit that it had used.
    used_s: float
