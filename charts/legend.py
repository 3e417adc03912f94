"""The legend below a picture."""

from __future__ import annotations

from collections.abc import Sequence

from pliant.charts.drawing import Drawing, Key, Shape, Text, fitting
from pliant.charts.negotiation_marks import mark_shapes

_ROW, _SWATCH, _GAP = 20.0, 11.0, 18.0


def draw_legend(
    drawing: Drawing, keys: Sequence[Key], left: float, top: float, right: float
) -> float:
    """Draw entries in rows below ``top``; return the height that the picture needs with them."""
    x, y = left, top + 6
    for key in keys:
        words = fitting(key.words, right - left - _SWATCH, 12)
        width = len(words) * 6.6 + (_SWATCH + 6 if key.colour else 0)
        if x > left and x + width > right:
            x, y = left, y + _ROW
        if key.mark:
            drawing.above += mark_shapes(x + 5, y, key.mark)
        elif key.colour:
            half = _SWATCH / 2
            corners = [(x, y - half), (x + _SWATCH, y - half)]
            corners += [(x + _SWATCH, y + half), (x, y + half)]
            drawing.above.append(Shape([corners], key.colour))
        drawing.above.append(Text(x + (_SWATCH + 6 if key.colour else 0), y, words))
        x += width + _GAP
    return y + _ROW
