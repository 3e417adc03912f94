"""Pictures of a simulation as SVG: the processors of each job, and the processors in use.

Pictures are written line by line, so a picture of many jobs needs no memory for its text.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from pliant.core.values.processors import from_indices, indices
from pliant.simulator.run.result import Span

_WIDTH, _HEIGHT = 1200, 640
_LEFT, _TOP, _BOTTOM, _RIGHT = 70, 44, 40, 20
_GREY, _INK = "#d9dde2", "#22272e"
#: The units of the time axis, in seconds.
_UNITS = ((1, "s"), (60, "min"), (3600, "h"), (86400, "d"))


class _Frame:
    """The coordinates of a picture: time to the right, processors or a share vertically."""

    def __init__(self, begin: float, end: float, rows: float) -> None:
        self.begin, self.end, self.rows = begin, max(end, begin + 1e-9), rows
        self._wide = (_WIDTH - _LEFT - _RIGHT) / (self.end - self.begin)
        self._tall = (_HEIGHT - _TOP - _BOTTOM) / rows

    def x(self, moment: float) -> float:
        """Return the horizontal place of a time."""
        return round(_LEFT + (moment - self.begin) * self._wide, 2)

    def y(self, row: float) -> float:
        """Return the vertical place of a row."""
        return round(_TOP + row * self._tall, 2)

    def head(self, title: str) -> Iterator[str]:
        """Yield the beginning of the picture, with its title."""
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="11" '
            f'fill="{_INK}">'
        )
        yield f'<path d="M0 0H{_WIDTH}V{_HEIGHT}H0Z" fill="#ffffff"/>'
        yield f'<text x="{_LEFT}" y="22" font-size="15">{escape(title)}</text>'

    def axes(self, marks: Iterable[tuple[float, str]]) -> Iterator[str]:
        """Yield a line with a label for each marked row, and the axis of time."""
        for row, text in marks:
            y = self.y(row)
            yield f'<path d="M{_LEFT - 5} {y}H{_WIDTH - _RIGHT}" stroke="{_GREY}"/>'
            yield f'<text x="{_LEFT - 9}" y="{y + 4}" text-anchor="end">{text}</text>'
        bottom = _HEIGHT - _BOTTOM
        for moment, text in _ticks(self.end - self.begin):
            x = self.x(self.begin + moment)
            yield f'<path d="M{x} {bottom}v5" stroke="{_INK}"/>'
            yield f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{text}</text>'
        yield f'<path d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}" fill="none" stroke="{_INK}"/>'


def gantt(spans: Sequence[Span], processors: int, title: str) -> Iterator[str]:
    """Yield the lines of a picture with a row for each processor and a colour for each job."""
    frame = _Frame(*_bounds(spans), rows=processors)
    yield from frame.head(title)
    for span in spans:
        colour = f"hsl({span.job * 137.508 % 360:.0f},62%,{68 if span.job % 2 else 76}%)"
        x, width = frame.x(span.start), max(0.3, frame.x(span.end) - frame.x(span.start))
        yield f'<g fill="{colour}"><title>job {span.job} on {len(span.processors)}</title>'
        for first, count in _runs(span.processors):
            y, height = frame.y(first), frame.y(first + count) - frame.y(first)
            edge = f' stroke="{_INK}" stroke-width="0.4"' if span.resized else ""
            yield f'<rect x="{x}" y="{y}" width="{width:.2f}" height="{height:.2f}"{edge}/>'
        yield "</g>"
    step = max(1, processors // 8)
    yield from frame.axes((row, str(row)) for row in range(0, processors + 1, step))
    yield "</svg>"


def utilization(spans: Sequence[Span], processors: int, title: str) -> Iterator[str]:
    """Yield the lines of a picture of the share of processors that jobs held."""
    frame = _Frame(*_bounds(spans), rows=1.0)
    yield from frame.head(title)
    path = [f"M{_LEFT} {frame.y(1)}"]
    for moment, held in _levels(spans):
        path.append(f"H{frame.x(moment)}V{frame.y(1 - held / processors)}")
    yield f'<path class="held" d="{"".join(path)}Z" fill="#9ec5e8" stroke="#2b6ca3"/>'
    yield from frame.axes((1 - part / 4, f"{part * 25} %") for part in range(5))
    yield "</svg>"


def _bounds(spans: Sequence[Span]) -> tuple[float, float]:
    begin = min((span.start for span in spans), default=0.0)
    return begin, max((span.end for span in spans), default=begin + 1.0)


def _runs(processors: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield (first, count) of each group of consecutive processors."""
    first = following = -1
    for index in indices(from_indices(processors)):
        if index != following:
            if following > first:
                yield first, following - first
            first = index
        following = index + 1
    if following > first:
        yield first, following - first


def _levels(spans: Sequence[Span]) -> Iterator[tuple[float, int]]:
    """Yield (time, number of processors held from then on)."""
    changes = [(span.start, len(span.processors)) for span in spans]
    changes += [(span.end, -len(span.processors)) for span in spans]
    held = 0
    previous: float | None = None
    for moment, change in sorted(changes):
        if previous is not None and moment != previous:
            yield previous, held
        held, previous = held + change, moment
    if previous is not None:
        yield previous, held


def _ticks(span: float) -> Iterator[tuple[float, str]]:
    """Yield about eight round times from 0 on, with their labels, in a suitable unit."""
    seconds, unit = next(
        ((size, name) for size, name in reversed(_UNITS) if span >= 2 * size), (1, "s")
    )
    rough = span / seconds / 8
    power = 1.0
    while power * 10 <= rough:
        power *= 10
    while power > rough > 0:
        power /= 10
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    for number in range(int(span / seconds / step) + 1):
        yield number * step * seconds, f"{number * step:g} {unit}"
