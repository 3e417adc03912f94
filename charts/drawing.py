"""A picture as a list of shapes and texts, which `svg` and `png` write.

Places are in pixels from the upper left corner. Colours are names of `colours.palette`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Point = tuple[float, float]
#: Polygons that have the same look.
Polygons = Sequence[Sequence[Point]]


@dataclass(frozen=True, slots=True)
class Shape:
    """Filled polygons. ``title`` is shown when the mouse is over them."""

    polygons: Polygons
    fill: str
    outline: str = ""
    opacity: float = 1.0
    title: str = ""
    #: The number of the job that it shows, for programs that read the picture.
    job: int | None = None
    hatched: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points."""

    points: Sequence[Point]
    colour: str
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A text; ``y`` is the vertical middle of its letters."""

    x: float
    y: float
    words: str
    colour: str = "ink2"
    size: float = 12.0
    anchor: Literal["start", "middle", "end"] = "start"
    bold: bool = False
    #: Whether it runs from below to above.
    upright: bool = False


class Key(NamedTuple):
    """An entry of the legend: a colour and its meaning, or a sentence without a colour."""

    colour: str
    words: str
    #: ``counter`` or ``refused`` for the mark of a negotiation, otherwise a square.
    mark: str = ""


@dataclass(slots=True)
class Drawing:
    """A picture: its size in pixels, its title, and shapes in three layers.

    Shapes in `inside` are cut off at the edges of the panel, the area between the axes.
    """

    width: float
    height: float
    title: str
    #: Left, top, right and bottom of the panel.
    panel: tuple[float, float, float, float]
    below: list[Shape | Line | Text] = field(default_factory=list)
    inside: list[Shape | Line | Text] = field(default_factory=list)
    above: list[Shape | Line | Text] = field(default_factory=list)


#: Categories of characters that have no look of their own, or change that of others.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(words: str) -> str:
    """Return a text with control and formatting characters replaced by their codes."""
    return "".join(
        character
        if unicodedata.category(character) not in _INVISIBLE
        else character.encode("unicode_escape", "backslashreplace").decode("ascii")
        for character in words
    )


#: Mean width of a letter, as a part of the size of the text. Wide enough for common fonts.
_LETTER = 0.56
_BOLD_LETTER = 0.6


def fitting(words: str, width: float, size: float, *, bold: bool = False) -> str:
    """Return a text, cut to ``width`` pixels; empty if less than three letters would remain.

    ``size`` is the size of the letters in pixels.
    """
    letters = int(width / (size * (_BOLD_LETTER if bold else _LETTER)))
    if len(words) <= letters:
        return words
    return words[: letters - 1] + "…" if letters > 3 else ""
