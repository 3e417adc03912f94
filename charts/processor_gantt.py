"""Which processors each job held: a row for each processor, grouped by node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pliant.charts import layout
from pliant.charts.axes import Scale
from pliant.charts.drawing import Drawing, Key, Line, Shape, Text, fitting
from pliant.charts.job_sizes_over_time import Band

#: Machines with more processors cannot be drawn in this way.
MAX_LANES = 512
_SMALLEST, _LARGEST, _WANTED = 2.0, 18.0, 360.0


class Node(NamedTuple):
    """A node in the picture: its name and its rows, one for each processor."""

    name: str
    #: Global index of its first processor.
    first: int
    slots: int


class Lanes(NamedTuple):
    """The nodes of the picture, in the order in which their rows are drawn."""

    nodes: Sequence[Node]

    @property
    def rows(self) -> int:
        """Return the number of rows of the picture, one for each processor."""
        return sum(node.slots for node in self.nodes)

    @property
    def row_height(self) -> float:
        """Return the height of a row, which is one processor, in pixels."""
        return min(_LARGEST, max(_SMALLEST, _WANTED / max(1, self.rows)))

    @property
    def height(self) -> float:
        """Return the height of all rows in pixels."""
        return max(40.0, self.rows * self.row_height)


def draw_lanes(drawing: Drawing, lanes: Lanes, bands: Sequence[Band], scale: Scale) -> list[Key]:
    """Draw a rectangle for each period in which a job held a block of neighbouring processors.

    Return the entries of the legend.
    """
    row_of, starts, row = {}, set(), 0
    for node in lanes.nodes:
        y = scale.top + row * lanes.row_height
        drawing.above.append(Line([(scale.left, y), (scale.right, y)], "line2"))
        middle = y + node.slots * lanes.row_height / 2
        if node.slots * lanes.row_height >= 11:
            name = fitting(node.name, scale.left - 36, 11)
            drawing.above.append(Text(scale.left - 7, middle, name, "ink3", 11, "end"))
        starts.add(row)
        for index in range(node.slots):
            row_of[node.first + index] = row
            row += 1
    for key, polygons in sorted(_rectangles(bands, row_of, starts, scale, lanes.row_height)):
        drawing.inside.append(Shape(polygons, *key))
    named = [band for band in bands if band.id is not None]
    if len(named) <= 16:
        return [Key(f"c{band.hue}", f"{band.id} {band.name}") for band in named]
    return [Key("c5", f"{len(named):,} jobs; colours repeat")]


def _rectangles(
    bands: Sequence[Band],
    row_of: dict[int, int],
    starts: set[int],
    scale: Scale,
    height: float,
) -> Iterator[tuple[tuple[str, str], list[list[tuple[float, float]]]]]:
    """Yield, for each pair of fill colour and outline colour, the rectangles that have it.

    Of the jobs at the same place that are narrower than half a pixel, only one is drawn.

    Args:
        bands: the jobs, with the processors that they held over time.
        row_of: the row of each processor.
        starts: the first row of each node.
        scale: converts times to pixels.
        height: the height of a row in pixels.
    """
    groups: dict[tuple[str, str], list[list[tuple[float, float]]]] = {}
    seen: set[tuple[int, int, int]] = set()
    for band in bands:
        for hold in band.holds:
            start, end = layout.clipped(hold, scale.window)
            left, right = scale.x(start), scale.x(end)
            if end <= start:
                continue
            is_narrow = right - left < layout.MERGED
            outline = "card" if right - left >= layout.OUTLINED[0] and height >= 4 else ""
            shapes = groups.setdefault((f"c{band.hue}", outline), [])
            for row, count in _runs(hold.processors, row_of, starts):
                place = (int(left / layout.MERGED), row, count)
                if is_narrow and place in seen:
                    continue
                seen.add(place)
                top, edge = scale.top + row * height, max(right, left + layout.MERGED)
                bottom = top + count * height
                shapes.append([(left, top), (edge, top), (edge, bottom), (left, bottom)])
    yield from groups.items()


def _runs(
    processors: frozenset[int], row_of: dict[int, int], starts: set[int]
) -> Iterator[tuple[int, int]]:
    """Yield blocks of neighbouring rows within a node: the first row and the number of rows.

    Args:
        processors: the processors that a job held.
        row_of: the row of each processor.
        starts: the first row of each node, where a new block begins.
    """
    first, following = -1, -1
    for row in sorted(row_of[index] for index in processors if index in row_of):
        if row != following or row in starts:
            if following > first:
                yield first, following - first
            first = row
        following = row + 1
    if following > first:
        yield first, following - first
