"""Draw which job held which processors when, as SVG, from recorded events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from pliant.client.terminal.durations import format_duration
from pliant.client.terminal.tables import clean, shorten

Event = Mapping[str, Any]

_LEFT, _TOP, _AXIS = 90, 44, 34
_WIDTH = 960
_LEGEND_ROW, _LEGEND_COLUMN = 18, 210
_GREY, _INK = "#d9dde2", "#22272e"


@dataclass(frozen=True, slots=True)
class Allocation:
    """The processors that a job held between two times, in seconds since the epoch."""

    job: int
    start: float
    end: float
    #: Global indices, ascending.
    processors: tuple[int, ...]
    #: Whether it began with a resize.
    resized: bool


@dataclass(frozen=True, slots=True)
class NodeRows:
    """The rows of a node in the chart: its first row, and how many it has."""

    name: str
    first: int
    slots: int


def allocations(events: Iterable[Event], end: float | None = None) -> list[Allocation]:
    """Return the allocations of jobs from their starts, resizes and ends.

    Allocations that still last are ended at the time ``end``, by default that of the last event.
    """
    done: list[Allocation] = []
    held: dict[int, Allocation] = {}
    last = end or 0.0
    for event in events:
        when, kind, job = float(event["time"]), event["kind"], event.get("job")
        last = max(last, when) if end is None else end
        if job is None or kind not in {"job.started", "job.resized", "job.ended"}:
            continue
        if job in held:
            done += _closed(held.pop(job), when)
        if kind != "job.ended":
            indices = tuple(sorted(set((event.get("data") or {}).get("processors") or ())))
            held[job] = Allocation(job, when, when, indices, kind == "job.resized")
    for allocation in held.values():
        done += _closed(allocation, last)
    return sorted(done, key=lambda a: (a.start, a.job))


def _closed(allocation: Allocation, end: float) -> list[Allocation]:
    if end <= allocation.start or not allocation.processors:
        return []
    return [
        Allocation(allocation.job, allocation.start, end, allocation.processors, allocation.resized)
    ]


def node_rows(nodes: Sequence[Mapping[str, Any]], used: Iterable[int] = ()) -> list[NodeRows]:
    """Return the rows of each node; one without a known first row follows the previous node.

    Processors in ``used`` that no present node has, because their node left, get further rows.
    """
    rows, following = [], 0
    for node in nodes:
        first = int(node["first"]) if node.get("first") is not None else following
        rows.append(NodeRows(str(node["name"]), first, int(node["slots"])))
        following = first + int(node["slots"])
    known = {index for row in rows for index in range(row.first, row.first + row.slots)}
    rows += [NodeRows("?", first, count) for first, count in runs(sorted(set(used) - known))]
    return sorted(rows, key=lambda row: row.first)


def runs(indices: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield (first, count) for each unbroken run of ascending numbers."""
    first = count = -1
    for index in indices:
        if count > 0 and index == first + count:
            count += 1
            continue
        if count > 0:
            yield first, count
        first, count = index, 1
    if count > 0:
        yield first, count


def gantt_svg(
    events: Sequence[Event],
    nodes: Sequence[Mapping[str, Any]],
    *,
    names: Mapping[int, str] | None = None,
    title: str = "Processors over time",
    end: float | None = None,
) -> str:
    """Return an SVG picture of the events: a row for each processor, a colour for each job.

    Args:
        events: what `history` answers; other kinds than starts, resizes and ends are ignored.
        nodes: what `nodes` answers: ``name``, ``slots`` and, if known, ``first``.
        names: names of jobs for the legend.
        title: the line above the picture.
        end: when to close what still runs (default: at the last event).
    """
    spans = allocations(events, end)
    rows = node_rows(nodes, (index for span in spans for index in span.processors))
    begin = min((span.start for span in spans), default=0.0)
    finish = max((span.end for span in spans), default=begin + 1.0)
    return _Picture(rows, spans, begin, max(finish, begin + 1e-3)).draw(names or {}, title)


class _Picture:
    """The scales and margins of one chart."""

    def __init__(
        self, rows: list[NodeRows], spans: list[Allocation], begin: float, finish: float
    ) -> None:
        self.rows, self.spans, self.begin, self.finish = rows, spans, begin, finish
        self.jobs = list(dict.fromkeys(span.job for span in spans))
        count = sum(row.slots for row in rows)
        self.step = max(2, min(22, 640 // max(1, count)))
        self.offsets = {}
        place = 0
        for row in rows:
            for index in range(row.first, row.first + row.slots):
                self.offsets[index] = place
                place += 1
        self.bottom = _TOP + count * self.step

    def x(self, moment: float) -> float:
        """Return the horizontal place of a time."""
        share = (moment - self.begin) / (self.finish - self.begin)
        return round(_LEFT + share * (_WIDTH - _LEFT - 20), 2)

    def y(self, index: int) -> int:
        """Return the vertical place of a processor."""
        return _TOP + self.offsets[index] * self.step

    def draw(self, names: Mapping[int, str], title: str) -> str:
        """Return the whole picture as SVG."""
        legend = max(1, (_WIDTH - _LEFT) // _LEGEND_COLUMN)
        height = self.bottom + _AXIS + _LEGEND_ROW * (-(-len(self.jobs) // legend)) + 10
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="11" '
            f'fill="{_INK}">',
            f'<path class="paper" d="M0 0H{_WIDTH}V{height}H0Z" fill="#ffffff"/>',
            f'<text x="{_LEFT}" y="22" font-size="15">{_text(title)}</text>',
            *self._grid(),
            *(part for span in self.spans for part in self._allocation(span, names)),
            *self._legend(names, legend),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _grid(self) -> Iterator[str]:
        for moment in _ticks(self.finish - self.begin):
            x = self.x(self.begin + moment)
            yield f'<path d="M{x} {_TOP}V{self.bottom + 4}" stroke="{_GREY}"/>'
            yield (
                f'<text x="{x}" y="{self.bottom + 18}" text-anchor="middle">'
                f"{format_duration(moment) if moment else '0'}</text>"
            )
        for row in self.rows:
            if not row.slots:
                continue
            top = self.y(row.first)
            middle = top + row.slots * self.step / 2 + 4
            yield f'<path d="M{_LEFT - 6} {top}H{_WIDTH - 20}" stroke="{_GREY}"/>'
            yield (
                f'<text x="{_LEFT - 12}" y="{middle}" text-anchor="end">'
                f"{_text(shorten(row.name, 12))}</text>"
            )
        yield f'<path d="M{_LEFT} {_TOP}V{self.bottom}H{_WIDTH - 20}" fill="none" stroke="{_INK}"/>'

    def _allocation(self, span: Allocation, names: Mapping[int, str]) -> Iterator[str]:
        left, right = self.x(span.start), self.x(span.end)
        label = f"{names.get(span.job, f'job {span.job}')} on {len(span.processors)}"
        since, until = span.start - self.begin, span.end - self.begin
        hint = f"{label}, {since:.3f} s to {until:.3f} s"
        places = sorted(self.offsets[index] for index in span.processors)
        pieces = [(_TOP + first * self.step, count * self.step) for first, count in runs(places)]
        yield f'<g class="allocation" data-job="{span.job}"><title>{_text(hint)}</title>'
        for top, tall in pieces:
            yield (
                f'<rect x="{left}" y="{top}" width="{max(0.5, round(right - left, 2))}" '
                f'height="{tall}" fill="{self._colour(span.job)}" stroke="#ffffff" '
                'stroke-width="0.7"/>'
            )
            if span.resized:
                yield (
                    f'<path class="resize" d="M{left} {top}V{top + tall}" stroke="{_INK}" '
                    'stroke-width="2"/>'
                )
        top, tall = max(pieces, key=lambda piece: piece[1])
        if right - left > 7 * len(label) and tall >= 12:
            yield (
                f'<text x="{(left + right) / 2:.2f}" y="{top + tall / 2 + 4}" '
                f'text-anchor="middle">{_text(label)}</text>'
            )
        yield "</g>"

    def _legend(self, names: Mapping[int, str], columns: int) -> Iterator[str]:
        for place, job in enumerate(self.jobs):
            x = _LEFT + place % columns * _LEGEND_COLUMN
            y = self.bottom + _AXIS + place // columns * _LEGEND_ROW
            label = shorten(f"{job} {names.get(job, '')}".strip(), 30)
            yield f'<path class="key" d="M{x} {y}h12v12h-12z" fill="{self._colour(job)}"/>'
            yield f'<text class="legend" x="{x + 18}" y="{y + 10}">{_text(label)}</text>'

    def _colour(self, job: int) -> str:
        # The golden angle keeps neighbours apart for any number of jobs.
        place = self.jobs.index(job) if len(self.jobs) < 1000 else job
        return f"hsl({(210 + place * 137.508) % 360:.0f},62%,{68 if place % 2 else 74}%)"


def _ticks(span: float) -> Iterator[float]:
    """Yield about eight round times from 0 to the end, for the axis of the chart."""
    rough = span / 8
    unit = 10.0 ** len(str(int(rough))) / 10 if rough >= 1 else 1.0
    while unit > rough:
        unit /= 10
    steps = [unit, 2 * unit, 5 * unit, 10 * unit]
    if rough >= 30:  # clocks count in sixties
        steps = [60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400]
        while steps[-1] < rough:
            steps.append(steps[-1] * 2)
    step = next((step for step in steps if step >= rough), steps[-1])
    for number in range(int(span / step) + 1):
        yield number * step


def _text(value: str) -> str:
    return escape(clean(value))
