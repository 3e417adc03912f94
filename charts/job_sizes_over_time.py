"""Bands: how many processors each job of a picture held, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pliant.charts.allocations_from_history import JobTrack


class Hold(NamedTuple):
    """A period in which a job held ``size`` processors; ``end`` is None if it continues."""

    #: Seconds, as ``end``.
    start: float
    end: float | None
    size: float
    #: The processors by their global indices; empty if they are not known.
    processors: frozenset[int] = frozenset()


class Mark(NamedTuple):
    """A mark on a band, at the time of a counter-offer, a refusal or a roll-back."""

    #: Seconds.
    time: float
    #: ``counter``, or ``refused`` for offers that were refused or expired and for roll-backs.
    kind: str


class Band(NamedTuple):
    """The shape of a job in a picture: when it held how many processors.

    One band may also stand for many short jobs together.
    """

    #: The number of the job; None if it stands for several jobs.
    id: int | None
    name: str
    user: str
    #: Which of the ten colours it has.
    hue: int
    #: In order of time, without overlaps.
    holds: Sequence[Hold]
    marks: Sequence[Mark] = ()
    #: When it was submitted, in seconds; None if that is not known.
    submit: float | None = None
    #: When it ended; None if it has not ended.
    end: float | None = None


#: Kinds of marks that pictures show. A withdrawn offer was the server's own decision.
SHOWN_MARKS = frozenset({"refused", "counter"})


def band_of(track: JobTrack) -> Band:
    """Return the band of a job, its shape in a picture, from its processors over time."""
    holds = [Hold(s.start, s.end, len(s.processors), s.processors) for s in track.segments]
    marks = [Mark(time, kind) for time, kind in track.marks if kind in SHOWN_MARKS]
    hue = track.hue if track.hue is not None else 0
    return Band(track.id, track.name, track.user, hue, holds, marks, track.submit, track.end)


def first_start(band: Band) -> tuple[float, int]:
    """Return the key by which bands of jobs are stacked: the first start, then the job number.

    A band is the shape of a job in a picture.
    """
    return band.holds[0].start, band.id if band.id is not None else -1
