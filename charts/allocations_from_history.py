"""Compute from the history which processors each job held over time.

No input or output. A job holds processors from its start until they are released: after a shrink
it holds those of the leaving ranks until they have exited, so the sum over all jobs never exceeds
the machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pliant.core.values.processors import format_ranges, from_indices, parse_ranges

Event = Mapping[str, Any]

#: Colours of jobs. The page has this many in each theme.
HUES = 10
#: Changes that follow each other within this time count as one, seconds.
SAME_MOMENT_S = 0.001


@dataclass(slots=True)
class Segment:
    """A period in which a job held the same processors; ``end`` is None until it has ended."""

    start: float
    end: float | None
    processors: frozenset[int]

    def to_row(self) -> list[Any]:
        """Return [start, end, number of processors, their list as text] for the live page."""
        return [
            self.start,
            self.end,
            len(self.processors),
            format_ranges(from_indices(self.processors)),
        ]


@dataclass(slots=True)
class JobTrack:
    """The processors that one job held over time, and its marks, collected from history events.

    A mark is the time of a counter-offer, a refusal or a withdrawal.
    """

    id: int
    name: str = ""
    user: str = ""
    sizes: str = ""
    submit: float | None = None
    start: float | None = None
    end: float | None = None
    state: str = "PENDING"
    #: Its colour, given at the first start and kept for life.
    hue: int | None = None
    segments: list[Segment] = field(default_factory=list)
    #: Time and kind of what went differently than offered: ``counter``, ``refused``, ``withdrawn``.
    marks: list[tuple[float, str]] = field(default_factory=list)

    @property
    def held(self) -> frozenset[int]:
        """Return the processors that the job holds now; empty if it holds none."""
        last = self.segments[-1] if self.segments else None
        return last.processors if last is not None and last.end is None else frozenset()

    def hold(self, processors: Iterable[int], time: float) -> None:
        """Set the processors that the job holds from a time on."""
        wanted = frozenset(processors)
        if wanted == self.held:
            return
        last = self.segments[-1] if self.segments else None
        if last is not None and last.end is None:
            last.end = time
            if time - last.start < SAME_MOMENT_S:
                self.segments.pop()
        if wanted:
            self.segments.append(Segment(time, None, wanted))

    def forget(self, before: float) -> None:
        """Drop the periods (segments) that ended before a time, and marks older than this time."""
        old = itertools.takewhile(lambda s: s.end is not None and s.end < before, self.segments)
        del self.segments[: sum(1 for _ in old)]
        old_marks = itertools.takewhile(lambda mark: mark[0] < before, self.marks)
        del self.marks[: sum(1 for _ in old_marks)]


class JobTracks:
    """The processors that each job held over time. Apply events in the order of the history."""

    def __init__(self) -> None:
        self.by_job: dict[int, JobTrack] = {}
        #: How many jobs of each colour hold processors.
        self._hue_use = [0] * HUES

    def apply(self, event: Event) -> int | None:
        """Apply an event; return the job that it changed, None if it changed none."""
        number = event.get("job")
        handler = _HANDLERS.get(str(event["kind"]))
        if number is None or handler is None:
            return None
        track = self.track(int(number))
        had = bool(track.held)
        handler(track, float(event["time"]), event.get("data") or {})
        self._update_colours(track, had)
        return track.id

    def track(self, number: int) -> JobTrack:
        """Return the track of a job, its processors over time; make one if the job is unknown."""
        found = self.by_job.get(number)
        if found is None:
            found = self.by_job[number] = JobTrack(number)
        return found

    def update_from_row(self, row: Mapping[str, Any]) -> None:
        """Update the track of a job from its row in the server's job list.

        A track has the processors of a job over time. The row has values, such as the start, that
        may be missing in the events that were applied.
        """
        track = self.track(int(row["id"]))
        had = bool(track.held)
        track.name, track.user = str(row["name"]), str(row["user"])
        track.sizes, track.state = str(row["sizes"]), str(row["state"])
        track.submit = row["submit"]
        track.start, track.end = row["start"] or track.start, row["end"]
        if track.end is not None:
            track.hold((), track.end)
        elif not track.segments and row["start"] is not None and row.get("procs"):
            track.hold(parse_ranges(row["procs"]), float(row["start"]))
        self._update_colours(track, had)

    def drop_ended(self, before: float) -> list[int]:
        """Remove jobs that ended before a time; return their ids.

        Of other jobs, the segments (periods with the same processors) that ended before this time
        are dropped. A job may run and be resized for months, and each message about it has all its
        segments.
        """
        for track in self.by_job.values():
            track.forget(before)
        old = [t.id for t in self.by_job.values() if t.end is not None and t.end < before]
        for number in old:
            del self.by_job[number]
        return old

    def _update_colours(self, track: JobTrack, had: bool) -> None:
        """Update how many running jobs have each colour; a job that starts gets the rarest colour.

        ``had`` says whether the job held processors before the change to its track.
        """
        has = bool(track.held)
        if has and track.hue is None:
            track.hue = _choose_hue(track.id, self._hue_use)
        if track.hue is not None:
            self._hue_use[track.hue] += has - had


def _choose_hue(job: int, use: Sequence[int]) -> int:
    """Return the colour of a job that starts: the one that the fewest running jobs have.

    Args:
        job: the number of the job, which decides between colours that are used equally.
        use: the number of running jobs with each of the `HUES` colours.
    """
    order = [(job * 3 + step * 7) % HUES for step in range(HUES)]
    return min(order, key=lambda hue: (use[hue], order.index(hue)))


# ------------------------------------------------------------------ what each kind of event changes

_Handler = Callable[[JobTrack, float, Mapping[str, Any]], None]


def _submitted(track: JobTrack, time: float, data: Mapping[str, Any]) -> None:
    track.submit, track.state = time, "PENDING"
    track.name, track.user = str(data.get("name", "")), str(data.get("user", ""))
    track.sizes = str(data.get("sizes", ""))


def _started(track: JobTrack, time: float, data: Mapping[str, Any]) -> None:
    track.start = track.start if track.start is not None else time
    track.state = "STARTING"
    track.hold(data.get("processors") or (), time)


def _resized(track: JobTrack, time: float, data: Mapping[str, Any]) -> None:
    # Leaving ranks hold their processors until an event says that these were released. Those that
    # exited before the commit were released already.
    now = frozenset(data.get("processors") or ())
    track.hold(now | track.held if data.get("direction") == "shrink" else now, time)
    track.state = "RUNNING"


def _released(track: JobTrack, time: float, data: Mapping[str, Any]) -> None:
    track.hold(track.held - frozenset(data.get("processors") or ()), time)


def _ended(track: JobTrack, time: float, data: Mapping[str, Any]) -> None:
    track.hold((), time)
    track.end, track.state = time, str(data.get("state", "COMPLETED"))


def _left(state: str) -> _Handler:
    def handle(track: JobTrack, time: float, _: Mapping[str, Any]) -> None:
        track.hold((), time)
        track.state = state

    return handle


def _state(state: str) -> _Handler:
    def handle(track: JobTrack, _time: float, _: Mapping[str, Any]) -> None:
        track.state = state

    return handle


def _mark(kind: str) -> _Handler:
    def handle(track: JobTrack, time: float, _: Mapping[str, Any]) -> None:
        track.marks.append((time, kind))

    return handle


def _answered(track: JobTrack, time: float, data: Mapping[str, Any]) -> None:
    kind = {"REJECT": "refused", "COUNTER": "counter"}.get(str(data.get("answer")))
    if kind is not None:
        track.marks.append((time, kind))


_HANDLERS: Mapping[str, _Handler] = {
    "job.submitted": _submitted,
    "job.started": _started,
    "job.running": _state("RUNNING"),
    "job.resized": _resized,
    "job.ended": _ended,
    "job.suspended": _left("SUSPENDED"),
    "job.queued": _left("PENDING"),
    "job.held": _state("HELD"),
    "job.released": _state("PENDING"),
    "processors.released": _released,
    "resize.go": _state("ADAPTING"),
    "resize.rolled_back": _mark("refused"),
    "offer.answered": _answered,
    "offer.expired": _mark("refused"),
    "offer.declined": _mark("refused"),
    "offer.withdrawn": _mark("withdrawn"),
}
