"""Plain tables for terminals, with control characters escaped and columns as wide as needed."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def clean(value: object) -> str:
    """Return a text with every unprintable character escaped, so that no terminal interprets it.

    Unprintable are control characters, marks that change the direction of writing, and bytes that
    are no text.
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def width(text: str) -> int:
    """Return the number of terminal cells of a text from `clean`."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def table(
    heads: Sequence[str], rows: Sequence[Sequence[object]], *, right: frozenset[str] = frozenset()
) -> str:
    """Return a table of rows under their heads.

    ``right`` has the heads of the columns that are right-aligned.
    """
    return table_of_blocks(heads, [(len(rows), list(zip(*rows, strict=True)))], right=right)


def table_of_blocks(
    heads: Sequence[str],
    blocks: Sequence[tuple[int, Sequence[Sequence[object]]]],
    *,
    right: frozenset[str],
) -> str:
    """Return a table as `table` does, but from cells that are given by column.

    Args:
        heads: the heads of the columns.
        blocks: the lines in groups: for each the number of its lines, and its cells by column. One
            cell alone stands for all lines of its block, and is padded only once.
        right: the heads of the columns that are right-aligned.
    """
    blocks = [(1, [[head] for head in heads]), *(block for block in blocks if block[0])]
    columns = zip(*(cells for _, cells in blocks), strict=True)
    filled = [
        _fill(parts, to_right=head in right) for head, parts in zip(heads, columns, strict=True)
    ]
    lines: list[str] = []
    for (count, _), parts in zip(blocks, zip(*filled, strict=True), strict=True):
        whole = [part if len(part) == count else part * count for part in parts]
        lines += map(str.rstrip, map("  ".join, zip(*whole, strict=True)))
    return "\n".join(lines)


def _fill(parts: Sequence[Sequence[object]], *, to_right: bool) -> list[list[str]]:
    """Return the cells of one column, escaped and padded to the same width.

    ``parts`` are the cells of the column in each block of lines.
    """
    texts = [[str(cell) for cell in part] for part in parts]
    whole = "".join(map("".join, texts))  # one look at all cells instead of one at each
    if not whole.isprintable():
        texts = [[clean(text) for text in part] for part in texts]
    if whole.isascii():
        size = max(max(map(len, part)) for part in texts)
        pad = str.rjust if to_right else str.ljust
        return [[pad(text, size) for text in part] for part in texts]
    size = max(max(map(width, part)) for part in texts)
    return [[_pad(text, size, to_right=to_right) for text in part] for part in texts]


def _pad(text: str, size: int, *, to_right: bool) -> str:
    gap = " " * (size - width(text))
    return gap + text if to_right else text + gap


def shorten(text: str, limit: int) -> str:
    """Return a text cut to at most ``limit`` characters, with a mark where it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
