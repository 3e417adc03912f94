"""Plain tables for terminals: widths by content, nothing in a name can steer the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def clean(value: object) -> str:
    """Return a text in which every character that is not for showing is written as an escape.

    These are the ones that a terminal may obey: control characters, marks that turn the direction
    of writing, bytes that are no text.
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def width(text: str) -> int:
    """Return the number of terminal cells of a clean text."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def table(
    heads: Sequence[str], rows: Sequence[Sequence[object]], *, right: frozenset[str] = frozenset()
) -> str:
    """Return the rows under their heads; the columns named in ``right`` end at the same place."""
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = [
        max(width(head), *(width(row[column]) for row in cells)) if cells else width(head)
        for column, head in enumerate(heads)
    ]
    lines = []
    for row in (list(heads), *cells):
        parts = []
        for head, text, cell_width in zip(heads, row, widths, strict=True):
            gap = " " * (cell_width - width(text))
            parts.append(gap + text if head in right else text + gap)
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def shorten(text: str, limit: int) -> str:
    """Return a text of at most ``limit`` characters, with a mark where something was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
