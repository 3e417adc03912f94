"""Read points in time: ``2h``, ``now+1hour``, ``16:00``, ``tomorrow``, ``2026-12-24T08:00``."""

from __future__ import annotations

import re
import time

from pliant.client.terminal.durations import is_compact_span, parse_span
from pliant.core.support.input_limits import MAX_DAYS, MAX_DURATION_S

#: How a point in time is written, for messages.
MOMENT_FORMS = (
    "write 90s, 30 (minutes), 2h, now+1hour, 16:30, 4:30pm, noon, tomorrow, 2026-12-24 or "
    "2026-12-24T16:30"
)

#: The units after ``now+`` and a number, as Slurm abbreviates them, in seconds.
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
_COUNTED = re.compile(r"now\+(\d{1,9})\s*([a-z]*)", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*(am|pm)?", re.ASCII)
#: Hours that Slurm knows by name.
_NAMED_HOURS = {"midnight": 0, "noon": 12, "fika": 15, "teatime": 16}
_DATES = ("%Y-%m-%d", "%m/%d/%y", "%m/%d/%Y")
#: What stands between a date and a clock time: ``2026-12-24T16:30``, ``tomorrow 16:30``.
_DATE_AND_TIME = re.compile(r"(.+?)(?:t|-|\s+)(\d{1,2}:.*|midnight|noon|fika|teatime)")

Clock = tuple[int, int, int]


def parse_moment(text: str, now: float) -> tuple[float | None, float | None]:
    """Read a point in time: relative to the submission, or absolute by the clock of this machine.

    Relative: ``90s``, ``2h``, ``1h30m``, also ``+2h`` and ``now+2h``; a bare number counts minutes.
    After ``now+``, units may be words (``now+1hour``), and a bare number counts seconds, as in
    Slurm. Absolute: ``16:30``, ``4:30pm``, ``noon`` (the next time that the clock shows it),
    ``tomorrow`` (the beginning of the day), ``2026-12-24``, ``12/24``, and a day with a clock time:
    ``2026-12-24T16:30``, ``tomorrow 16:30``.

    Args:
        text: the user's text.
        now: seconds since the epoch.

    Returns:
        Seconds from the submission, or None; seconds since the epoch, or None.

    Raises:
        ValueError: the text is no point in time, or one that has passed.
    """
    compact = text.strip().lower()
    seconds = _seconds_from_now(compact)
    at: float | None = None
    if seconds is not None:
        if not seconds > 0:
            raise ValueError(f"{text!r} leaves no time; {MOMENT_FORMS}")
    else:
        at = _absolute(compact, now)
        if at is None:
            raise ValueError(f"{text!r} is not a point in time; {MOMENT_FORMS}")
        if at <= now:
            raise ValueError(f"{text!r} has passed; {MOMENT_FORMS}")
        seconds = at - now
    if seconds > MAX_DURATION_S:
        raise ValueError(f"{text!r} is more than {MAX_DAYS} days from now; {MOMENT_FORMS}")
    return (seconds, None) if at is None else (None, at)


def _seconds_from_now(text: str) -> float | None:
    """Return the seconds of a relative time; None for other text."""
    counted = _COUNTED.fullmatch(text)
    if counted is not None:
        number, word = counted.groups()
        for unit, seconds in _UNITS.items():
            if not word or (len(word) > 2 and f"{unit}s".startswith(word)):
                return float(number) * seconds
    relative = text.removeprefix("now").removeprefix("+")
    if is_compact_span(relative) or (relative.isascii() and relative.isdigit()):
        return parse_span(relative)
    return None


def _absolute(text: str, now: float) -> float | None:
    """Return the time of a date or clock time in seconds since the epoch; None for other text."""
    clock = _clock(text)
    if clock is not None:
        today = _at(now, 0, clock)
        return today if today is None or today > now else _at(now, 1, clock)
    day = _day(text, now, (0, 0, 0))
    if day is not None:
        return day
    both = _DATE_AND_TIME.fullmatch(text)
    clock = _clock(both[2]) if both else None
    return _day(both[1], now, clock) if both and clock else None


def _clock(text: str) -> Clock | None:
    """Return hour, minute and second of a clock time; None for other text."""
    if text in _NAMED_HOURS:
        return _NAMED_HOURS[text], 0, 0
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hour, minute, second = (int(part or 0) for part in match.groups()[:3])
    half = match[4]
    if half and not 1 <= hour <= 12:
        return None
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    return (hour, minute, second) if hour < 24 and minute < 60 and second < 60 else None


def _day(text: str, now: float, clock: Clock) -> float | None:
    """Return the time at ``clock`` on the day that a text names, in seconds since the epoch.

    A day without a year is the next such day after ``now``. The result is None if the text names
    no day.
    """
    if text in ("today", "tomorrow"):
        return _at(now, 0 if text == "today" else 1, clock)
    for pattern in _DATES:
        try:
            return time.mktime((*time.strptime(text, pattern)[:3], *clock, 0, 0, -1))
        except (ValueError, OverflowError):
            continue
    year = time.localtime(now).tm_year
    for each in (year, year + 1):  # a day without a year is the next one
        try:
            found = time.mktime(
                (*time.strptime(f"{each}/{text}", "%Y/%m/%d")[:3], *clock, 0, 0, -1)
            )
        except (ValueError, OverflowError):
            continue
        if found > now:
            return found
    return None


def _at(now: float, days: int, clock: Clock) -> float | None:
    """Return a clock time ``days`` days after today, in seconds since the epoch.

    The result is None if it is out of range.
    """
    year, month, day = time.localtime(now)[:3]
    try:
        # mktime corrects a day that the month does not have.
        return time.mktime((year, month, day + days, *clock, 0, 0, -1))
    except (ValueError, OverflowError):
        return None
