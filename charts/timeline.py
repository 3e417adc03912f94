"""The picture of processors over time: bands of jobs, or areas of users, above the queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from pliant.charts import layout
from pliant.charts.axes import Scale, clock_axis, elapsed_axis, nice_step
from pliant.charts.drawing import Drawing, Key, Line, Shape, Text, fitting
from pliant.charts.job_sizes_over_time import Band
from pliant.charts.labels import place_label
from pliant.charts.layout import Piece, Window
from pliant.charts.legend import draw_legend
from pliant.charts.negotiation_marks import draw_marks
from pliant.charts.processor_gantt import Lanes, draw_lanes

#: With more jobs, bands of one colour become one shape, so that the file stays small.
_MAX_TITLED = 300
#: With more jobs than this, the legend does not name them.
_MAX_NAMED = 16
#: Steps of all bands together; each takes about 20 bytes of a file.
_MAX_PIECES = 18_000
_LEFT, _RIGHT, _TOP = 64.0, 14.0, 44.0
_PANEL, _QUEUE, _AXIS = 340.0, 54.0, 46.0


@dataclass(frozen=True, slots=True)
class Timeline:
    """The content of a picture: bands, processors, nodes, title and window of time."""

    bands: Sequence[Band]
    #: All processors of the machine.
    processors: int
    window: Window
    title: str
    #: Whether times are seconds since the epoch. Others are shown as elapsed time.
    is_clock: bool = False
    #: Where elapsed time begins; by default at the start of the window.
    origin: float | None = None
    #: Times, and the number of usable processors from each of them on; empty if it never changes.
    usable: Sequence[tuple[float, int]] = ()
    #: The time zone of the axis; None for the local one.
    zone: tzinfo | None = None
    #: Rows of processors, to draw where each job ran; None to stack the jobs.
    lanes: Lanes | None = None


def draw_timeline(timeline: Timeline, width: float = 1060.0) -> Drawing:
    """Return the picture of a timeline, ``width`` pixels wide."""
    panel = _PANEL if timeline.lanes is None else timeline.lanes.height
    scale = Scale(
        timeline.window, _LEFT, width - _RIGHT, _TOP, _TOP + panel, max(1, timeline.processors)
    )
    queue_top = scale.bottom + 22
    queue_bottom = queue_top + _QUEUE
    shown = layout.bands_between(timeline.bands, timeline.window)
    drawing = Drawing(
        width, 0.0, timeline.title, (scale.left, scale.top, scale.right, scale.bottom)
    )
    drawing.above.append(
        Text(_LEFT, 20, fitting(timeline.title, width - 100, 14, bold=True), "ink", 14, bold=True)
    )
    _axes(drawing, timeline, scale, queue_bottom)
    if timeline.lanes is not None:
        keys = draw_lanes(drawing, timeline.lanes, shown, scale)
    elif (most := layout.concurrency(shown, timeline.window)) > layout.MAX_BANDS:
        keys = _draw_users(drawing, shown, scale, most)
    else:
        keys = _draw_bands(drawing, shown, scale)
    if not shown:
        middle = (scale.left + scale.right) / 2
        drawing.above.append(
            Text(middle, (scale.top + scale.bottom) / 2, "no job ran in this time", anchor="middle")
        )
    if timeline.lanes is None:
        keys += _draw_unusable(drawing, timeline, scale)
    _draw_queue(drawing, timeline, scale, queue_top, queue_bottom)
    if shown and timeline.processors:
        share = layout.mean_use(shown, timeline.window) / timeline.processors
        keys.append(Key("", f"{share:.1%} of the processors held on average"))
    drawing.height = draw_legend(drawing, keys, _LEFT, queue_bottom + _AXIS, scale.right)
    return drawing


def _axes(drawing: Drawing, timeline: Timeline, scale: Scale, queue_bottom: float) -> None:
    wanted = int((scale.right - scale.left) / 110)
    axis = (
        clock_axis(timeline.window, wanted, timeline.zone)
        if timeline.is_clock
        else elapsed_axis(timeline.window, wanted, timeline.origin)
    )
    for time, words in axis.ticks:
        x = scale.x(time)
        drawing.below.append(Line([(x, scale.top), (x, scale.bottom)], "line"))
        drawing.below.append(Line([(x, scale.bottom + 22), (x, queue_bottom)], "line"))
        half = 3.4 * len(words)  # of the width of the label, which stays inside the picture
        x = max(scale.left - 20 + half, min(x, scale.right - half))
        drawing.above.append(Text(x, queue_bottom + 13, words, "ink3", anchor="middle"))
    middle = (scale.left + scale.right) / 2
    drawing.above.append(Text(middle, queue_bottom + 31, axis.title, "ink2", anchor="middle"))
    if timeline.lanes is None:
        step = nice_step(timeline.processors / 6)
        number = 0.0
        while number <= timeline.processors:
            y = scale.y(number)
            drawing.below.append(Line([(scale.left, y), (scale.right, y)], "line"))
            drawing.above.append(Text(scale.left - 7, y, f"{number:,.0f}", "ink3", anchor="end"))
            number += step
    title = "processors held" if timeline.lanes is None else "processors by node"
    drawing.above.append(
        Text(14, (scale.top + scale.bottom) / 2, title, anchor="middle", upright=True)
    )


def _draw_bands(drawing: Drawing, bands: Sequence[Band], scale: Scale) -> list[Key]:
    second = 1 / scale.per_second
    merged = layout.merge_short(bands, scale.window, layout.MIN_WIDTH * second)
    pieces = _stacked(merged, scale)
    drawing.inside += (
        _one_by_one(merged, pieces, scale)
        if len(merged) <= _MAX_TITLED
        else _by_colour(merged, pieces, scale)
    )
    for band, own in zip(merged, pieces, strict=True):
        if band.id is not None:
            drawing.inside += place_label(band, own, scale)
    keys = [
        Key(f"c{band.hue}", f"{band.id} {band.name}")
        for band in merged
        if band.id is not None and len(bands) <= _MAX_NAMED
    ]
    if not keys and bands:
        number = f"{len(bands):,} jobs" if len(bands) > 1 else "1 job"
        keys.append(Key("c5", f"{number}: a band each, as high as what it holds; colours repeat"))
    if merged[-1:] and merged[-1].id is None:
        keys.append(Key("line2", f"{merged[-1].name}, narrower than a band: their mean"))
    return keys + draw_marks(drawing, merged, pieces, scale)


def _stacked(bands: Sequence[Band], scale: Scale) -> list[list[Piece]]:
    """Return, for each band (job), the rectangles of its shape when all bands are stacked.

    There are at most `_MAX_PIECES` rectangles, so that files stay small. If there would be more,
    changes of size that are close together are drawn as one.
    """
    step_s = layout.MERGED / scale.per_second
    while True:
        pieces = layout.stack(bands, scale.window, step_s)
        if sum(len(own) for own in pieces) <= _MAX_PIECES:
            return pieces
        step_s *= 1.5


def _one_by_one(
    bands: Sequence[Band], pieces: Sequence[Sequence[Piece]], scale: Scale
) -> Iterator[Shape]:
    """Yield a shape for each job, with a title that is shown when the mouse points at the shape.

    ``pieces`` are the rectangles of each job.
    """
    for band, own in zip(bands, pieces, strict=True):
        if not own:
            continue
        most = max(piece.height for piece in own)
        sizes = dict.fromkeys(f"{piece.height:g}" for piece in own)
        listed = ", ".join(list(sizes)[:12]) if len(sizes) > 1 else f"{most:g}"
        title = f"{band.id} {band.name} ({band.user}): holds {listed}"
        yield Shape(
            list(_outlines(own, scale)),
            f"c{band.hue}" if band.id is not None else "line2",
            _outline(own, scale) if band.id is not None else "",
            title=title if band.id is not None else band.name,
            job=band.id,
        )


def _by_colour(
    bands: Sequence[Band], pieces: Sequence[Sequence[Piece]], scale: Scale
) -> Iterator[Shape]:
    """Yield one shape for all bands (jobs) that have the same colour and the same outline.

    ``pieces`` are the rectangles of each band.
    """
    groups: dict[tuple[str, str], list[list[tuple[float, float]]]] = {}
    for band, own in zip(bands, pieces, strict=True):
        colour = f"c{band.hue}" if band.id is not None else "line2"
        key = colour, _outline(own, scale) if band.id is not None else ""
        groups.setdefault(key, []).extend(_outlines(own, scale))
    for (colour, outline), polygons in sorted(groups.items()):
        yield Shape(polygons, colour, outline)


def _outline(pieces: Sequence[Piece], scale: Scale) -> str:
    return "card" if layout.is_outlined(pieces, scale.per_second, scale.per_unit) else ""


def _outlines(pieces: Sequence[Piece], scale: Scale) -> Iterator[list[tuple[float, float]]]:
    """Yield a polygon around each sequence of rectangles that follow each other without a gap."""
    run: list[Piece] = []
    for piece in pieces:
        if run and run[-1].b != piece.a:
            yield _polygon(run, scale)
            run = []
        run.append(piece)
    if run:
        yield _polygon(run, scale)


def _polygon(run: Sequence[Piece], scale: Scale) -> list[tuple[float, float]]:
    points = [(scale.x(run[0].a), scale.y(run[0].bottom))]
    for piece in run:
        y = scale.y(piece.bottom + piece.height)
        points += [(scale.x(piece.a), y), (scale.x(piece.b), y)]
    for piece in reversed(run):
        y = scale.y(piece.bottom)
        points += [(scale.x(piece.b), y), (scale.x(piece.a), y)]
    return points


def _draw_users(drawing: Drawing, bands: Sequence[Band], scale: Scale, most: int) -> list[Key]:
    columns = max(1, round((scale.right - scale.left) / layout.MIN_WIDTH))
    base = [0.0] * (columns + 1)
    keys = [Key("", f"{len(bands):,} jobs, up to {most:,} at once: drawn by user")]
    for place, area in enumerate(layout.by_user(bands, scale.window, columns)):
        upper = [below + level for below, level in zip(base, area.levels, strict=True)]
        colour = "line2" if area.users > 1 else f"c{(place * 3 + 3) % 10}"
        name = area.user or "unknown user"
        polygon = _area(base, upper, columns, scale)
        drawing.inside.append(Shape([polygon], colour, title=name))
        keys.append(Key(colour, name))
        base = upper
    return keys + draw_marks(drawing, bands, [], scale)


def _area(
    lower: Sequence[float], upper: Sequence[float], columns: int, scale: Scale
) -> list[tuple[float, float]]:
    width = (scale.right - scale.left) / columns
    points = []
    for column in range(columns):
        x, y = scale.left + column * width, scale.y(upper[column])
        points += [(x, y), (x + width, y)]
    for column in reversed(range(columns)):
        x, y = scale.left + column * width, scale.y(lower[column])
        points += [(x + width, y), (x, y)]
    return points


def _draw_unusable(drawing: Drawing, timeline: Timeline, scale: Scale) -> list[Key]:
    """Draw a dashed line at the number of usable processors, and hatch the area above it.

    Return the entries of the legend.
    """
    until = min(timeline.window.end, timeline.window.now)
    steps = [step for step in timeline.usable if step[0] < until]
    if not steps:
        return []
    ends = [time for time, _ in steps[1:]] + [until]
    points = []
    is_short = False
    for (time, usable), end in zip(steps, ends, strict=True):
        if end <= timeline.window.start:
            continue
        left, right = scale.x(max(time, timeline.window.start)), scale.x(end)
        y = scale.y(min(usable, timeline.processors))
        points += [(left, y), (right, y)]
        if usable < timeline.processors:
            is_short = True
            corners = [(left, scale.top), (right, scale.top), (right, y), (left, y)]
            drawing.inside.append(Shape([corners], "line2", hatched=True))
    if not is_short:
        return []
    drawing.inside.append(Line(points, "ink2", 1.2, dashed=True))
    return [Key("", "dashed: usable processors; hatched: drained, lost or not there")]


def _draw_queue(
    drawing: Drawing, timeline: Timeline, scale: Scale, top: float, bottom: float
) -> None:
    columns = max(1, round((scale.right - scale.left) / layout.MIN_WIDTH))
    until = min(timeline.window.end, timeline.window.now)
    levels = layout.waiting(timeline.bands, timeline.window, columns)
    most = max(levels, default=0.0)
    own = Scale(timeline.window, scale.left, scale.right, top, bottom, max(1.0, most))
    last = min(columns, round((own.x(until) - own.left) / (own.right - own.left) * columns))
    if last > 0 and most > 0:
        points = _area([0.0] * (columns + 1), levels, last, _part(own, last, columns))
        drawing.above.append(Shape([points], "warn", opacity=0.3))
        drawing.above.append(Line(points[: 2 * last], "warn"))
    drawing.above += _queue_axis(own, most)


def _part(scale: Scale, last: int, columns: int) -> Scale:
    """Return a scale that is narrower: the first ``last`` of ``columns`` equal parts of the width.

    It shows the same window of time.
    """
    right = scale.left + (scale.right - scale.left) * last / columns
    return Scale(scale.window, scale.left, right, scale.top, scale.bottom, scale.most)


def _queue_axis(scale: Scale, most: float) -> Iterable[Line | Text]:
    yield Line([(scale.left, scale.bottom), (scale.right, scale.bottom)], "line2")
    yield Text(scale.left - 7, scale.bottom - 3, "0", "ink3", anchor="end")
    if most > 0:
        digits = 0 if most >= 10 or most == int(most) else 1
        yield Text(scale.left - 7, scale.top + 4, f"{most:,.{digits}f}", "ink3", anchor="end")
    middle = (scale.top + scale.bottom) / 2
    yield Text(14, middle, "waiting", anchor="middle", upright=True)
