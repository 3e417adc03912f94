"""Pictures as files: SVG, or PNG if the name of the file says so."""

from __future__ import annotations

from pliant.charts.drawing import Drawing
from pliant.charts.output.png import can_write_png, to_png
from pliant.charts.output.svg import SvgTheme, to_svg

#: What to tell if a PNG is wanted and matplotlib is missing.
NEEDS_MATPLOTLIB = "PNG needs matplotlib; install pliant[plots], or name a file that ends with .svg"


def is_png(path: str) -> bool:
    """Return whether the name of a file ends like that of a PNG."""
    return path.lower().endswith(".png")


def missing_for(path: str) -> str | None:
    """Return why a picture cannot be written into a file of this name here; None if it can."""
    return NEEDS_MATPLOTLIB if is_png(path) and not can_write_png() else None


def encoded(drawing: Drawing, path: str, theme: SvgTheme = "auto") -> bytes:
    """Return a drawing as the contents of a file of this name.

    A PNG gets the light colours if the theme is ``auto``.
    """
    if is_png(path):
        return to_png(drawing, "dark" if theme == "dark" else "light")
    return to_svg(drawing, theme).encode()
