"""Draw marks where a resize offer was refused, rolled back or answered by a counter-offer.

Accepted offers have no mark, because the height of the band changes there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import cos, pi, sin

from pliant.charts import layout
from pliant.charts.axes import Scale
from pliant.charts.drawing import Drawing, Key, Shape
from pliant.charts.job_sizes_over_time import SHOWN_MARKS, Band
from pliant.charts.layout import Piece

_COLOURS = {"refused": "bad", "counter": "warn"}
_WORDS = {"refused": "refused, expired or rolled back", "counter": "counter-offer"}
#: Half of the size of a mark, pixels.
_HALF = 5.0
#: Height of the ticks that stand for marks which are too many.
_TICK = 6.0


def draw_marks(
    drawing: Drawing, bands: Sequence[Band], pieces: Sequence[Sequence[Piece]], scale: Scale
) -> list[Key]:
    """Draw the marks of refused and countered resize offers; return their entries in the legend.

    An entry has the number of marks of its kind. If more than `layout.MAX_MARKS` would be drawn,
    or ``pieces`` is empty because the picture shows users, not jobs, ticks below the panel replace
    the marks: one for each column with a refusal or a counter-offer.

    Args:
        drawing: the picture, to which shapes are added.
        bands: the shapes of the jobs, with their marks.
        pieces: the rectangles of each band.
        scale: converts times and processors to pixels.
    """
    window = scale.window
    inside = [
        (index, mark)
        for index, band in enumerate(bands)
        for mark in band.marks
        if mark.kind in SHOWN_MARKS and window.start <= mark.time <= window.end
    ]
    counts = Counter(mark.kind for _, mark in inside)
    places = []
    for index, mark in inside if pieces else ():
        piece = next((p for p in pieces[index] if p.a <= mark.time <= p.b), None)
        if piece is not None:
            places.append((scale.x(mark.time), scale.y(piece.bottom + piece.height), mark.kind))
    chosen = layout.choose_marks(places)
    if chosen is not None and pieces:
        for x, y, kind in chosen:
            drawing.inside += mark_shapes(x, y, kind)
    else:
        for kind in sorted(counts):
            times = [mark.time for _, mark in inside if mark.kind == kind]
            drawing.above += _ticks(times, kind, scale)
    below = "" if chosen is not None and pieces else ", ticks below the picture"
    return [
        Key(_COLOURS[kind], f"{_WORDS[kind]} ({counts[kind]:,}{below})", kind)
        for kind in sorted(counts)
    ]


def _ticks(times: Sequence[float], kind: str, scale: Scale) -> Iterator[Shape]:
    """Yield one shape with a tick at each horizontal position that has an event of this kind."""
    top = scale.bottom + (2 if kind == "refused" else 3 + _TICK)
    columns = sorted({int((scale.x(time) - scale.left) / layout.MIN_WIDTH) for time in times})
    polygons = []
    for column in columns:
        left = scale.left + column * layout.MIN_WIDTH
        right = left + layout.MIN_WIDTH
        polygons.append([(left, top), (right, top), (right, top + _TICK), (left, top + _TICK)])
    yield Shape(polygons, _COLOURS[kind])


def mark_shapes(x: float, y: float, kind: str) -> Iterator[Shape]:
    """Yield the shapes of a mark: a diamond for a counter-offer, a crossed disc for a refusal."""
    colour = _COLOURS[kind]
    if kind == "counter":
        corners = [(x, y - _HALF), (x + _HALF, y), (x, y + _HALF), (x - _HALF, y)]
        yield Shape([corners], "card", colour)
        return
    disc = [(x + _HALF * cos(pi * step / 6), y + _HALF * sin(pi * step / 6)) for step in range(12)]
    yield Shape([disc], "card", colour)
    arm, thick = _HALF * 0.5, 0.7
    for sign in (1, -1):
        yield Shape(
            [
                [
                    (x - arm - thick, y - sign * (arm - thick)),
                    (x - arm + thick, y - sign * (arm + thick)),
                    (x + arm + thick, y + sign * (arm - thick)),
                    (x + arm - thick, y + sign * (arm + thick)),
                ]
            ],
            colour,
        )
