"""Read and write time spans; write points in time and sizes in bytes."""

from __future__ import annotations

import re
import time

from pliant.core.support.input_limits import MAX_DAYS, MAX_DURATION_S

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PARTS = r"(?a)(?:\d+(?:\.\d+)?[smhd])+"
_PART = r"(?a)(\d+(?:\.\d+)?)([smhd])"
_INTERVAL = r"(?a)(\d+(?:\.\d+)?)(ms|s)"
_CLOCK = r"(?a)(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+(?:\.\d+)?))?"


#: How a span is written, for messages.
SPAN_FORMS = "write 90s, 30 (minutes), 30m, 2h, 1h30m, MM:SS, HH:MM:SS or D-HH:MM:SS"


def parse_duration(text: str) -> float:
    """Return the seconds of a time span; a number without a unit is in minutes.

    Raises:
        ValueError: the text is no time span, or the span is 0 or too long.
    """
    seconds = parse_span(text)
    if not seconds > 0:
        raise ValueError(f"{text!r} is no time to run in; {SPAN_FORMS}")
    if seconds > MAX_DURATION_S:
        raise ValueError(f"{text!r} is longer than {MAX_DAYS} days; {SPAN_FORMS}")
    return seconds


def parse_span(text: str) -> float:
    """Return the seconds of a time span of any length, including 0.

    Raises:
        ValueError: the text is no span.
    """
    compact = text.strip().lower()
    if re.fullmatch(_PARTS, compact):
        return sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, compact))
    return _parse_clock(text, compact)


def parse_interval(text: str) -> float:
    """Return the seconds of a short interval, such as ``50ms`` or ``1s``.

    Raises:
        ValueError: the text is no interval.
    """
    match = re.fullmatch(_INTERVAL, text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not an interval; write it with a unit, as in 50ms or 1s")
    return float(match[1]) / (1000 if match[2] == "ms" else 1)


def is_compact_span(text: str) -> bool:
    """Return whether a text is a span that is written with units, such as ``1h30m``."""
    return re.fullmatch(_PARTS, text) is not None


def _parse_clock(text: str, compact: str) -> float:
    match = re.fullmatch(_CLOCK, compact)
    if match is None:
        raise ValueError(f"{text!r} is not a span of time; {SPAN_FORMS}")
    days, first, second, third = match.groups()
    if days is not None:  # D-HH[:MM[:SS]]
        hours, minutes, seconds = float(first), float(second or 0), float(third or 0)
    elif third is not None:
        hours, minutes, seconds = float(first), float(second), float(third)
    else:  # MM[:SS]
        hours, minutes, seconds = 0.0, float(first), float(second or 0)
    clock = days is not None or third is not None  # otherwise the minutes lead
    if seconds >= 60 or (clock and minutes >= 60):
        raise ValueError(f"{text!r}: minutes and seconds go up to 59; {SPAN_FORMS}")
    return float(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


def format_duration(seconds: float | None) -> str:
    """Return a span with two units at most, such as ``3.2s`` or ``4m05s``; ``-`` for None."""
    if seconds is None:
        return "-"
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def format_time(moment: float | None, now: float | None = None) -> str:
    """Return a point in time as text: the clock time if it is today, otherwise with the date.

    The text is ``-`` for None. Times are in seconds since the epoch.
    """
    if moment is None:
        return "-"
    then, today = time.localtime(moment), time.localtime(now)
    pattern = "%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M"
    return time.strftime(pattern, then)


def format_bytes(count: float | None) -> str:
    """Return a number of bytes as text: ``512 B``, ``1.50 GiB``; ``-`` for None and 0."""
    if not count:
        return "-"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.3g} {unit}"
