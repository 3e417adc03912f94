"""Timers: how the core asks to be woken. One that no longer matters is ignored when it fires."""

from enum import StrEnum
from typing import NamedTuple

from pliant.core.values.ids import FIRST_START, JobId, ResizeId


class TimerKind(StrEnum):
    """What a timer is for."""

    #: The application has not answered an offer.
    OFFER = "offer"
    #: The time has come from which on the application can give.
    RELEASE_TIME = "release_time"
    #: Newcomers have not come up, or the next coordinator has not connected.
    PREPARE = "prepare"
    #: The application has not reached a safe point since GO.
    SAFE_POINT = "safe_point"
    #: The application has begun and not reported.
    DEADLINE = "deadline"
    #: Leaving ranks of a committed shrink have not exited: the job continues without them.
    RELEASE = "release"
    #: They still have not exited: kill them.
    LEAVERS = "leavers"
    #: A joining rank has died, and the application has not rolled the growth back.
    ROLLBACK = "rollback"
    #: A stage of a suspension is overdue.
    SAVE = "save"
    #: A node has not reported that the job's processes run.
    START = "start"
    #: Processes of an ending job are still there after KILL.
    END = "end"
    #: All ranks have ended by themselves, and leavers or newcomers are still there.
    STRAGGLERS = "stragglers"
    #: Processes on a node that is cut off have ended by themselves.
    CUT_OFF = "cut_off"
    #: The job outlived its time limit.
    LIMIT = "limit"
    #: The job has used up its estimate.
    ESTIMATE = "estimate"
    #: More of a job's processors were to come free; plan with those that did.
    SETTLE = "settle"
    #: A job that refused an offer may be asked again.
    QUIET = "quiet"
    #: A request of the application has not been met.
    REQUEST = "request"
    #: The strategy asked to be called again (``Plan.wake_at``); about no job.
    WAKE = "wake"


class Timer(NamedTuple):
    """One wish to be woken, named by what it is about."""

    kind: TimerKind
    job: JobId
    run: int
    resize: ResizeId = FIRST_START
