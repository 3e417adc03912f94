"""Timers: the core asks to be called at a time. A handler ignores a timer that is outdated."""

from enum import StrEnum
from typing import NamedTuple

from pliant.core.values.ids import FIRST_START, JobId, ResizeId


class TimerKind(StrEnum):
    """The kinds of timers; `state_machine` has a handler for each."""

    #: The answer to an offer is overdue.
    OFFER = "offer"
    #: The time that the application named for the resize has come.
    RELEASE_TIME = "release_time"
    #: Joining ranks are not up, or the next coordinator has not connected.
    PREPARE = "prepare"
    #: The application has not reached a safe point since GO.
    SAFE_POINT = "safe_point"
    #: The application has begun the resize and not reported its decision.
    DEADLINE = "deadline"
    #: Leaving ranks of a committed shrink have not exited: the job continues without them.
    RELEASE = "release"
    #: Leaving ranks still have not exited and are killed.
    LEAVERS = "leavers"
    #: A joining rank has died, and the application has not rolled the growth back.
    ROLLBACK = "rollback"
    #: A stage of a suspension is overdue.
    SAVE = "save"
    #: A node has not reported that processes of the job run.
    START = "start"
    #: Processes of an ending job are still alive after KILL.
    END = "end"
    #: All ranks of the job have exited, but leaving or joining ranks have not.
    STRAGGLERS = "stragglers"
    #: Processes on a node without contact have ended by now.
    CUT_OFF = "cut_off"
    #: The begin time of the job has come.
    BEGIN = "begin"
    #: The job has used up its time limit.
    LIMIT = "limit"
    #: The time limit of the job is near, and its processes get a signal.
    WARNING = "warning"
    #: The job has used up its estimate.
    ESTIMATE = "estimate"
    #: Processors of a shrinking job had time to become free together. Plan with the free ones.
    SETTLE = "settle"
    #: Ranks of an ending job have exited some time ago, and others still run. Use the processors of
    #: the former.
    WITHHELD = "withheld"
    #: A job that refused an offer may get offers again.
    QUIET = "quiet"
    #: A request of the application expires.
    REQUEST = "request"
    #: The strategy asked to be called again (``Plan.wake_at``). About no job.
    WAKE = "wake"


class Timer(NamedTuple):
    """A timer, identified by its purpose, its job, the job's run and the open resize."""

    kind: TimerKind
    job: JobId
    run: int
    resize: ResizeId = FIRST_START
