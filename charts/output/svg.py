"""Write a drawing as SVG. The same drawing gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Literal

from pliant.charts.colours import Theme, palette
from pliant.charts.drawing import Drawing, Line, Point, Polygons, Shape, Text, visible

#: ``auto`` follows the reader's system.
SvgTheme = Theme | Literal["auto"]

_FONT = "Inter,system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"
#: Places are rounded to a tenth of a pixel.
_SCALE = 10


def to_svg(drawing: Drawing, theme: SvgTheme = "auto") -> str:
    """Return a drawing as the text of an SVG file."""
    width, height = _number(drawing.width), _number(drawing.height)
    left, top, right, bottom = drawing.panel
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" font-family="{_FONT}" font-size="12">',
        f"<title>{_text(drawing.title)}</title>",
        f"<style>{_style(theme)}</style>",
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse">'
        '<path d="M0 6L6 0" class="hatch"/></pattern>'
        f'<clipPath id="panel"><path d="{_path([_rectangle(left, top, right, bottom)])}"/>'
        "</clipPath></defs>",
        f'<path class="card" d="M0 0h{width}v{height}h-{width}z"/>',
        *_elements(drawing.below),
        '<g clip-path="url(#panel)">',
        *_elements(drawing.inside),
        "</g>",
        *_elements(drawing.above),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _rectangle(left: float, top: float, right: float, bottom: float) -> Sequence[Point]:
    return (left, top), (right, top), (right, bottom), (left, bottom)


def _style(theme: SvgTheme) -> str:
    fixed = (
        "text{dominant-baseline:central;white-space:pre}.b{font-weight:600}"
        "path{stroke-width:.8}polyline{fill:none}.hatch{stroke-width:1}"
    )
    first: Theme = "dark" if theme == "dark" else "light"
    rules = _rules(first)
    dark = f"@media (prefers-color-scheme:dark){{{_rules('dark')}}}" if theme == "auto" else ""
    return fixed + rules + dark


def _rules(theme: Theme) -> str:
    colours = palette(theme)
    rules = "".join(
        f".{name}{{fill:{value}}}.s-{name}{{stroke:{value}}}" for name, value in colours.items()
    )
    return f"{rules}.hatch{{stroke:{colours['line2']}}}"


def _elements(parts: Iterable[Shape | Line | Text]) -> Iterator[str]:
    for part in parts:
        match part:
            case Shape():
                yield _shape(part)
            case Line():
                points = " ".join(f"{_number(x)},{_number(y)}" for x, y in part.points)
                dashes = ' stroke-dasharray="5 4"' if part.dashed else ""
                yield (
                    f'<polyline class="s-{part.colour}" stroke-width="{_number(part.width)}"'
                    f'{dashes} points="{points}"/>'
                )
            case Text():
                yield _words(part)


def _shape(shape: Shape) -> str:
    classes = [shape.fill] if not shape.hatched else []
    extra = ' fill="url(#hatch)"' if shape.hatched else ""
    if shape.outline:
        classes.append(f"s-{shape.outline}")
    if shape.opacity < 1:
        extra += f' fill-opacity="{_number(shape.opacity)}"'
    if shape.job is not None:
        extra += f' data-job="{shape.job}"'
    name = f' class="{" ".join(classes)}"' if classes else ""
    start = f'<path{name}{extra} d="{_path(shape.polygons)}"'
    return f"{start}><title>{_text(shape.title)}</title></path>" if shape.title else f"{start}/>"


def _words(text: Text) -> str:
    extra = "" if text.anchor == "start" else f' text-anchor="{text.anchor}"'
    if text.size != 12:
        extra += f' font-size="{_number(text.size)}"'
    x, y = _number(text.x), _number(text.y)
    if text.upright:
        extra += f' transform="rotate(-90 {x} {y})"'
    bold = " b" if text.bold else ""
    return f'<text class="{text.colour}{bold}" x="{x}" y="{y}"{extra}>{_text(text.words)}</text>'


def _path(polygons: Polygons) -> str:
    """Return polygons as SVG path data with relative coordinates, which are the shortest."""
    parts = []
    for polygon in polygons:
        places = [(round(x * _SCALE), round(y * _SCALE)) for x, y in polygon]
        parts.append(f"M{_tenths(places[0][0])} {_tenths(places[0][1])}")
        parts += _steps(places)
        parts.append("z")
    return "".join(parts)


def _steps(places: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield the path commands of a polygon; successive horizontal or vertical lines become one.

    ``places`` are the corners of the polygon, in tenths of a pixel.
    """
    x, y = places[0]
    pending = ("", 0)
    for right, down in places[1:]:
        dx, dy = right - x, down - y
        x, y = right, down
        if dx and dy:
            if pending[1]:
                yield f"{pending[0]}{_tenths(pending[1])}"
            pending = ("", 0)
            yield f"l{_tenths(dx)} {_tenths(dy)}"
        elif dx or dy:
            letter, step = ("h", dx) if dx else ("v", dy)
            if letter == pending[0]:
                step += pending[1]
            elif pending[1]:
                yield f"{pending[0]}{_tenths(pending[1])}"
            pending = (letter, step)
    if pending[1]:
        yield f"{pending[0]}{_tenths(pending[1])}"


def _tenths(value: int) -> str:
    whole, tenth = divmod(abs(value), _SCALE)
    digits = f"{whole or ''}.{tenth}" if tenth else str(whole)
    return f"-{digits}" if value < 0 else digits


def _number(value: float) -> str:
    return _tenths(round(value * _SCALE))


def _text(words: str) -> str:
    return escape(visible(words))
