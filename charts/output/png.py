"""Write a drawing as PNG with matplotlib (the extra ``plots``)."""

from __future__ import annotations

import importlib.util
import io
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pliant.charts.colours import Theme, palette
from pliant.charts.drawing import Drawing, Line, Polygons, Shape, Text, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path

#: Points of a pixel of the drawing in the figure, whose unit is 1/72 inch.
_POINT = 0.72
#: Pixels of the file for each pixel of the drawing.
_DENSITY = 1.5
_LOOK = {"font.family": "DejaVu Sans", "hatch.linewidth": 0.6}


def can_write_png() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def to_png(drawing: Drawing, theme: Theme = "light") -> bytes:
    """Return a drawing as the contents of a PNG file. The same drawing gives the same bytes."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    colours = palette(theme)
    size = (drawing.width / 100, drawing.height / 100)
    figure = Figure(figsize=size, dpi=100 * _DENSITY, facecolor=colours["card"])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    left, top, right, bottom = drawing.panel
    panel = Rectangle((left, top), right - left, bottom - top, transform=axes.transData)
    layers = ((drawing.below, None), (drawing.inside, panel), (drawing.above, None))
    for level, (parts, clip) in enumerate(layers):
        _draw(axes, parts, colours, clip, level)
    buffer = io.BytesIO()
    # Letters that the font lacks are drawn as boxes, without a warning to the user.
    with warnings.catch_warnings(action="ignore"), rc_context(_LOOK):
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _draw(
    axes: Axes, parts: Iterable[Shape | Line | Text], colours: dict[str, str], clip: Any, level: int
) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch

    for order, part in enumerate(parts):
        artist: Any
        match part:
            case Shape():
                artist = PathPatch(
                    _path(part.polygons),
                    facecolor="none" if part.hatched else colours[part.fill],
                    edgecolor=colours[part.outline or part.fill] if _edge(part) else "none",
                    linewidth=0.8 * _POINT if part.outline else 0,
                    hatch="////" if part.hatched else None,
                    alpha=part.opacity if part.opacity < 1 else None,
                    antialiased=True,
                )
            case Line():
                artist = Line2D(
                    [x for x, _ in part.points],
                    [y for _, y in part.points],
                    color=colours[part.colour],
                    linewidth=part.width * _POINT,
                    linestyle="--" if part.dashed else "-",
                )
            case Text():
                artist = axes.text(
                    part.x,
                    part.y,
                    visible(part.words).replace("$", r"\$"),
                    color=colours[part.colour],
                    fontsize=part.size * _POINT,
                    fontweight="bold" if part.bold else "normal",
                    horizontalalignment={"start": "left", "middle": "center"}.get(
                        part.anchor, "right"
                    ),
                    verticalalignment="center_baseline",
                    rotation=90 if part.upright else 0,
                    rotation_mode="anchor",
                )
        artist.set_zorder(10 + level + order / 1e6)
        if not isinstance(part, Text):
            axes.add_artist(artist)
        if clip is not None:
            artist.set_clip_path(clip)


def _edge(shape: Shape) -> bool:
    return bool(shape.outline) or shape.hatched


def _path(polygons: Polygons) -> Path:
    from matplotlib.path import Path

    points: list[tuple[float, float]] = []
    codes: list[int] = []
    for polygon in polygons:
        points += [*polygon, polygon[0]]
        lines = [int(Path.LINETO)] * (len(polygon) - 1)
        codes += [int(Path.MOVETO), *lines, int(Path.CLOSEPOLY)]
    return Path(points, codes)
