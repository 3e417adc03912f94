"""A Gantt chart: which processors each job held, and when."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pliant.core.values.processors import from_indices, indices
from pliant.simulator.pictures.figure import COLOURS, new_figure, time_unit, titled_axes
from pliant.simulator.run.result import Span

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: With more rectangles, an SVG has them as one bitmap, so that the file stays small.
_MANY = 4000
#: A resize is marked if its span is at least this part of the whole time, so that the marks of
#: many short spans do not blacken the picture.
_NARROWEST = 1 / 250
#: Black is for marks.
_JOB_COLOURS = tuple(colour for colour in COLOURS if colour != "#000000")


def gantt(spans: Sequence[Span], processors: int, title: str) -> "Figure":
    """Draw a row for each processor and a rectangle for each time that a job held it."""
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    begin = min((span.start for span in spans), default=0.0)
    end = max((span.end for span in spans), default=begin + 1.0)
    seconds, unit = time_unit(end - begin)
    figure = new_figure(11.0, 6.0)
    axes = titled_axes(figure, title, f"time since the first start ({unit})", "processor")
    shapes, colours, marks = [], [], []
    for span in spans:
        left, right = (span.start - begin) / seconds, (span.end - begin) / seconds
        is_wide = span.end - span.start >= (end - begin) * _NARROWEST
        for first, count in _runs(span.processors):
            top = first + count
            shapes.append([(left, first), (right, first), (right, top), (left, top)])
            colours.append(_JOB_COLOURS[span.job % len(_JOB_COLOURS)])
            if span.resized and is_wide:
                marks.append([(left, first), (left, top)])
    axes.add_collection(
        PolyCollection(shapes, facecolors=colours, alpha=0.75, rasterized=len(shapes) > _MANY)
    )
    axes.add_collection(
        LineCollection(marks, colors="#000000", linewidths=0.7, rasterized=len(marks) > _MANY)
    )
    axes.set_xlim(0, (end - begin) / seconds)
    axes.set_ylim(0, processors)
    handles = [
        Patch(facecolor=_JOB_COLOURS[0], alpha=0.75, label="a job (colours repeat)"),
        Line2D([], [], color="#000000", linewidth=0.7, label="resize of a job (if long enough)"),
    ]
    figure.legend(handles=handles, loc="outside lower right", ncols=2, fontsize=8)
    return figure


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
