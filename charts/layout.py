"""Compute where the bands of jobs lie in a picture: times in seconds, heights in processors.

The rules of the live page, ``client/dashboard/static/js/layout.js``, are the same. A test lets both
arrange the same jobs and compares the results.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor
from typing import NamedTuple

from pliant.charts.job_sizes_over_time import Band, Hold, first_start

#: With more jobs at the same time, a picture shows users, because bands could not be told apart.
MAX_BANDS = 60
#: Users with a colour of their own; the others are drawn together.
MAX_USERS = 9
#: A job that is narrower than this is drawn together with other short jobs, pixels.
MIN_WIDTH = 1.5
#: Changes that are closer together than this become one, pixels.
MERGED = 0.5
#: A band has an outline if it is at least this wide and high in pixels. Outlines of smaller bands
#: would cover the picture.
OUTLINED = (14.0, 6.0)
#: Likewise, its steps must be this wide on average, pixels.
STEP_WIDTH = 4.0
#: Distance of two marks of negotiations, pixels.
MARK_DISTANCE = 13.0
#: With more marks than this, a picture has ticks below it instead.
MAX_MARKS = 60

#: Shortest window, seconds, so that an empty time has a scale.
SHORTEST_S = 1e-3


class Window(NamedTuple):
    """The time that a picture shows, in seconds; jobs that still run are drawn up to ``now``."""

    start: float
    end: float
    now: float


@dataclass(slots=True)
class Piece:
    """A rectangle of a band (a job in a picture), in seconds and processors.

    It reaches from time ``a`` to ``b``, and from ``bottom`` to ``bottom + height`` processors.
    """

    a: float
    b: float
    bottom: float
    height: float


class Area(NamedTuple):
    """The mean number of processors that the jobs of a user hold, for each column of the window.

    A column is one of the equal parts into which the time of the picture is divided.
    """

    user: str
    #: The number of users; more than 1 for the last area, which stands for the others.
    users: int
    levels: list[float]


def bands_between(bands: Iterable[Band], window: Window) -> list[Band]:
    """Return the bands (jobs in a picture) that hold processors in the window of time.

    They are sorted by their first start.
    """
    found = []
    for band in bands:
        if not band.holds:
            continue
        last = window.now if band.holds[-1].end is None else band.holds[-1].end
        if band.holds[0].start < window.end and last > window.start:
            found.append(band)
    return sorted(found, key=first_start)


def concurrency(bands: Iterable[Band], window: Window) -> int:
    """Return the largest number of jobs that hold processors at the same time in the window."""
    starts, ends = [], []
    for band in bands:
        for hold in band.holds:
            a, b = clipped(hold, window)
            if a < b:
                starts.append(a)
                ends.append(b)
    starts.sort()
    ends.sort()
    most = ended = 0
    for begun, start in enumerate(starts, start=1):
        while ends[ended] <= start:
            ended += 1
        most = max(most, begun - ended)
    return most


def clipped(hold: Hold, window: Window) -> tuple[float, float]:
    """Return begin and end of the part of a hold that is in the window; begin >= end if none is.

    A hold is a period in which a job held a number of processors.
    """
    end = window.now if hold.end is None else hold.end
    return max(window.start, hold.start), min(window.end, end)


def merge_short(bands: Sequence[Band], window: Window, column_s: float) -> list[Band]:
    """Return the bands (jobs in a picture), with one band that replaces all very short ones.

    A job is short if it held processors for less than a column, one of the equal parts of the
    picture's time. The band that replaces the short jobs is the last one. It has their mean size in
    each column, so that processors in use never look idle. Jobs that still hold processors are not
    replaced.

    Args:
        bands: in the order in which they are stacked.
        window: the time that is shown.
        column_s: seconds of a column.
    """
    shown: list[Band] = []
    short: list[Band] = []
    for band in bands:
        held = sum(max(0.0, b - a) for a, b in (clipped(hold, window) for hold in band.holds))
        is_short = held < column_s and band.holds[-1].end is not None
        (short if is_short else shown).append(band)
    if len(short) < 2:
        return list(bands)
    columns = max(1, round((window.end - window.start) / column_s))
    levels = [0.0] * (columns + 1)
    for band in short:
        add_means(levels, band.holds, window, columns)
    each = (window.end - window.start) / columns
    holds: list[Hold] = []
    for column, level in enumerate(running_sums(levels)[:columns]):
        start, size = window.start + column * each, round(level, 2)
        if size <= 0:
            continue
        if holds and holds[-1].end == start and holds[-1].size == size:
            holds[-1] = holds[-1]._replace(end=start + each)
        else:
            holds.append(Hold(start, start + each, size))
    marks = sorted(mark for band in short for mark in band.marks)
    return [*shown, Band(None, f"{len(short)} short jobs", "", 0, holds, marks)]


def stack(bands: Sequence[Band], window: Window, step_s: float) -> list[list[Piece]]:
    """Stack bands (jobs in a picture) on each other; return the rectangles of each band.

    Args:
        bands: in the order in which they are stacked, the first one at the bottom.
        window: the time that is shown.
        step_s: changes of size less than these seconds apart are drawn as one change.

    Returns:
        For each band, in the same order, its rectangles in order of time.
    """
    changes = sorted(_changes(bands, window), key=lambda change: change[0])
    finish = min(window.end, window.now)
    size = [0.0] * len(bands)
    pieces: list[list[Piece]] = [[] for _ in bands]
    last: dict[int, Piece] = {}
    active: list[int] = []

    def close(index: int, time: float) -> None:
        piece = last.pop(index, None)
        if piece is not None and time > piece.a:
            piece.b = min(time, finish)
            pieces[index].append(piece)

    place = 0
    while place < len(changes):
        time = changes[place][0]
        while place < len(changes) and changes[place][0] <= time + step_s:
            _, index, n = changes[place]
            place += 1
            if size[index] == 0 and n > 0:
                insort(active, index)
            elif size[index] > 0 and n == 0:
                active.remove(index)
                close(index, time)
            size[index] = n
        base = 0.0
        for index in active:
            piece = last.get(index)
            if piece is None or piece.bottom != base or piece.height != size[index]:
                close(index, time)
                last[index] = Piece(time, finish, base, size[index])
            base += size[index]
    for index in active:
        close(index, finish)
    return pieces


def _changes(bands: Sequence[Band], window: Window) -> Iterable[tuple[float, int, float]]:
    """Yield each change of a size: the time, the index of the band, and its size from then on.

    A band is a job in a picture. Its size is 0 when it holds no processors.
    """
    for index, band in enumerate(bands):
        for number, hold in enumerate(band.holds):
            end = window.now if hold.end is None else hold.end
            if end <= window.start or hold.start >= window.end:
                continue
            yield max(window.start, hold.start), index, hold.size
            is_last = number + 1 == len(band.holds)
            if hold.end is not None and (is_last or band.holds[number + 1].start > hold.end):
                yield hold.end, index, 0.0


def by_user(bands: Iterable[Band], window: Window, columns: int) -> list[Area]:
    """Return an area for each user, the mean processors of the user's jobs in each column.

    The largest area comes first. Users after the first `MAX_USERS` share one area. A column is one
    of the ``columns`` equal parts of the window.
    """
    levels: dict[str, list[float]] = {}
    for band in bands:
        level = levels.setdefault(band.user, [0.0] * (columns + 1))
        add_means(level, band.holds, window, columns)
    areas = [Area(user, 1, running_sums(level)) for user, level in levels.items()]
    areas.sort(key=lambda area: (-sum(area.levels), area.user))
    if len(areas) <= MAX_USERS + 1:
        return areas
    rest = areas[MAX_USERS:]
    together = [sum(values) for values in zip(*(area.levels for area in rest), strict=True)]
    return [*areas[:MAX_USERS], Area(f"{len(rest)} other users", len(rest), together)]


def mean_use(bands: Iterable[Band], window: Window) -> float:
    """Return the mean number of processors held in the window, up to the present time."""
    spans = ((*clipped(hold, window), hold.size) for band in bands for hold in band.holds)
    held = sum(max(0.0, end - start) * size for start, end, size in spans)
    return held / max(1e-9, min(window.end, window.now) - window.start)


def add_means(level: list[float], holds: Iterable[Hold], window: Window, columns: int) -> None:
    """Add the mean processors of holds in each column to ``level``, as differences between columns.

    A hold is a period in which a job held a number of processors. The cumulative sums of ``level``
    (`running_sums`) are the mean numbers of processors in the columns. A hold that begins or ends
    inside a column counts with the part of the column that it covers.

    Args:
        level: the differences, which are changed; it has ``columns`` + 1 elements.
        holds: the holds; those outside of the window do not count.
        window: the time that is divided into columns.
        columns: the number of columns.
    """
    per = columns / max(1e-9, window.end - window.start)
    for hold in holds:
        start, end = clipped(hold, window)
        a, b = (start - window.start) * per, (end - window.start) * per
        if b <= a:
            continue
        for place, sign in ((a, 1.0), (b, -1.0)):
            column = min(columns, floor(place))
            part = place - column
            level[column] += sign * hold.size * (1.0 - part)
            if column < columns:
                level[column + 1] += sign * hold.size * part


def running_sums(level: Sequence[float]) -> list[float]:
    """Return the cumulative sums of ``level``.

    A sum that differs from 0 only by rounding is returned as 0.
    """
    total, found = 0.0, []
    for value in level:
        total += value
        found.append(total if abs(total) > 1e-6 else 0.0)
    return found


def waiting(bands: Iterable[Band], window: Window, columns: int) -> list[float]:
    """Return the mean number of waiting jobs in each column of the window.

    A job waits before its first start and between two runs. A band without a time of submission
    does not count.
    """
    level = [0.0] * (columns + 1)
    for band in bands:
        since = band.submit
        waits = []
        for hold in band.holds:
            if since is not None and hold.start > since:
                waits.append(Hold(since, hold.start, 1))
            since = hold.end
            if since is None:
                break
        if since is not None and not band.holds:
            waits.append(Hold(since, band.end, 1))
        add_means(level, waits, window, columns)
    return running_sums(level)


def is_outlined(pieces: Sequence[Piece], per_second: float, per_processor: float) -> bool:
    """Return whether a band (a job in a picture) is large enough to be drawn with an outline.

    Args:
        pieces: the rectangles of the band.
        per_second: pixels per second.
        per_processor: pixels per processor.
    """
    width = area = 0.0
    for piece in pieces:  # in the order of the page, because equal sums decide
        width += (piece.b - piece.a) * per_second
        area += (piece.b - piece.a) * piece.height * per_second * per_processor
    is_large = width >= OUTLINED[0] and area >= width * OUTLINED[1]
    return bool(pieces) and is_large and width >= len(pieces) * STEP_WIDTH


def choose_marks(
    places: Iterable[tuple[float, float, str]],
) -> list[tuple[float, float, str]] | None:
    """Return marks that do not cover each other; None if there are more than `MAX_MARKS` of them.

    A mark shows where a job refused a resize or made a counter-offer. If a refusal and a
    counter-offer would cover each other, the refusal is kept.

    Args:
        places: for each mark its horizontal and vertical place in pixels, and its kind.
    """
    found: list[tuple[float, float, str]] = []
    for x, y, kind in sorted(places, key=lambda place: (place[2] != "refused", place[:2])):
        if any(
            abs(x - there) < MARK_DISTANCE and abs(y - high) < MARK_DISTANCE
            for there, high, _ in found
        ):
            continue
        found.append((x, y, kind))
        if len(found) > MAX_MARKS:
            return None
    return found
