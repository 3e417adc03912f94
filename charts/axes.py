"""Scales and ticks of the axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo
from math import ceil, floor, log10

from pliant.charts.layout import Window

#: Steps of an axis with clock times, seconds.
_CLOCK_STEPS = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200),
    *(86400, 2 * 86400, 7 * 86400, 14 * 86400, 28 * 86400, 91 * 86400, 364 * 86400, 1820 * 86400),
)
#: Units of an axis with elapsed time, in seconds.
_UNITS = ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"))
_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, slots=True)
class Scale:
    """Converts times to horizontal pixels, and numbers of processors to vertical pixels."""

    window: Window
    #: Pixels.
    left: float
    right: float
    top: float
    bottom: float
    #: The number at the upper edge.
    most: float

    @property
    def per_second(self) -> float:
        """Return how many pixels wide a second is."""
        return (self.right - self.left) / (self.window.end - self.window.start)

    @property
    def per_unit(self) -> float:
        """Return how many pixels high a processor is."""
        return (self.bottom - self.top) / self.most

    def x(self, time: float) -> float:
        """Return the horizontal position of a time, in pixels."""
        return self.left + (time - self.window.start) * self.per_second

    def y(self, number: float) -> float:
        """Return the vertical position of a number of processors, in pixels."""
        return self.bottom - number * self.per_unit


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The ticks of a time axis, each a time with its label, and the title of the axis."""

    ticks: list[tuple[float, str]]
    title: str


def nice_step(value: float) -> float:
    """Return a distance between ticks: a round whole number, at least ``value`` and at least 1."""
    if value <= 1:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(m * power for m in _STEPS if m * power >= value and (m * power) % 1 == 0)


def elapsed_axis(window: Window, wanted: int, origin: float | None = None) -> TimeAxis:
    """Return an axis with the time since ``origin``, by default the start of the window.

    It has about ``wanted`` ticks.
    """
    zero = window.start if origin is None else origin
    span = window.end - window.start
    seconds, unit = next((unit for unit in _UNITS if span >= 2 * unit[0]), _UNITS[-1])
    rough = span / seconds / max(1, wanted)
    power = 10.0 ** floor(log10(rough)) if rough > 0 else 1.0
    step = next(m * power for m in _STEPS if m * power >= rough * 0.999)
    first = ceil((window.start - zero) / seconds / step * 0.999999)
    last = floor((window.end - zero) / seconds / step * 1.000001)
    ticks = [
        (zero + number * step * seconds, f"{number * step:g}") for number in range(first, last + 1)
    ]
    return TimeAxis(ticks, f"time since the beginning ({unit})")


def clock_axis(window: Window, wanted: int, zone: tzinfo | None = None) -> TimeAxis:
    """Return an axis of about ``wanted`` ticks, with clock times in a time zone.

    ``zone`` is None for the local time zone.
    """
    span = window.end - window.start
    rough = span / max(1, wanted)
    step = next((each for each in _CLOCK_STEPS if each >= rough), _CLOCK_STEPS[-1])
    first = datetime.fromtimestamp(window.start, zone).astimezone(zone)
    last = datetime.fromtimestamp(window.end, zone).astimezone(zone)
    return TimeAxis(
        [(time, _clock(time, step, zone)) for time in _clock_times(window, step, zone)],
        f"time ({_days(first, last)}, {last.tzname()})",
    )


def _clock_times(window: Window, step: int, zone: tzinfo | None) -> Iterator[float]:
    """Yield the times in a window that are multiples of ``step`` seconds in local time.

    This holds after a clock change, too. ``zone`` is None for the local time zone.
    """
    moment = datetime.fromtimestamp(window.start, zone).astimezone(zone).utcoffset()
    offset = moment.total_seconds() if moment is not None else 0.0
    local = ceil((window.start + offset) / step) * step
    while local - offset <= window.end:
        time = local - offset
        there = datetime.fromtimestamp(time, zone).astimezone(zone).utcoffset()
        if there is not None and step >= 3600:
            time = local - there.total_seconds()
        if window.start <= time <= window.end:
            yield time
        local += step


def _clock(time: float, step: int, zone: tzinfo | None) -> str:
    moment = datetime.fromtimestamp(time, zone)
    if step >= 91 * 86400:
        return f"{moment:%Y-%m}"
    if step >= 86400:
        return f"{moment:%b} {moment.day}"
    if (moment.hour, moment.minute, moment.second) == (0, 0, 0):
        return f"{moment:%b} {moment.day}"
    return f"{moment:%H:%M:%S}" if step < 60 else f"{moment:%H:%M}"


def _days(first: datetime, last: datetime) -> str:
    if first.date() == last.date():
        return f"{first:%Y-%m-%d}"
    return f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"
