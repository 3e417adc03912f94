"""Names inside bands, where they fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pliant.charts.axes import Scale
from pliant.charts.drawing import Text, fitting
from pliant.charts.job_sizes_over_time import Band
from pliant.charts.layout import Piece

#: Smallest height and width of a rectangle for a name, pixels.
_HEIGHT, _WIDTH = 13.0, 34.0
#: A rectangle that is wider than this is not better, because a name fits, pixels.
_ENOUGH = 130.0
#: Pieces that are tried to the right of the first one.
_LOOKAHEAD = 12


def place_label(band: Band, pieces: Sequence[Piece], scale: Scale) -> Iterator[Text]:
    """Yield the name of a band (a job in the picture) where it has most room inside the band.

    Nothing is yielded if the name does not fit.

    Args:
        band: the band.
        pieces: the rectangles of which it consists.
        scale: converts times and processors to pixels.
    """
    best: tuple[float, float, float, float] | None = None
    for place in range(len(pieces)):
        rectangle = _largest_rectangle(pieces, place, scale)
        if rectangle is not None and (best is None or rectangle > best):
            best = rectangle
    if best is None:
        return
    _, width, left, middle = best
    words = fitting(f"{band.id} {band.name}", width - 10, 12, bold=True)
    if words:
        yield Text(left + 6, middle, words, f"on{band.hue}", bold=True)


def _largest_rectangle(
    pieces: Sequence[Piece], first: int, scale: Scale
) -> tuple[float, float, float, float] | None:
    """Return the largest rectangle inside a band that begins at the left edge of a piece.

    Args:
        pieces: the parts of the band, each of constant height.
        first: the index of the piece at which the rectangle begins.
        scale: converts times and processors to pixels.

    Returns:
        A score (higher is better), and width, left side and vertical middle in pixels; None if
        no rectangle is large enough for a name.
    """
    left = scale.x(pieces[first].a)
    top, bottom = float("-inf"), float("inf")
    best = None
    for place in range(first, min(len(pieces), first + _LOOKAHEAD)):
        piece = pieces[place]
        if place > first and pieces[place - 1].b != piece.a:
            break
        top = max(top, scale.y(piece.bottom + piece.height))
        bottom = min(bottom, scale.y(piece.bottom))
        height, width = bottom - top, scale.x(piece.b) - left
        if height < _HEIGHT:
            break
        if width > _WIDTH:
            value = min(_ENOUGH, width) * min(24.0, height) + width / 100
            if best is None or value > best[0]:
                best = value, width, left, (top + bottom) / 2
        if width >= _ENOUGH:
            break
    return best
