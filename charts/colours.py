"""The colours of pictures, light and dark: those of the live page (``style.css``).

The ten colours of jobs were found by a search for the largest distance under normal, protan, deutan
and tritan vision. Each has a contrast of at least 3.1 to the background. A test compares the values
with the style sheet.
"""

from __future__ import annotations

from typing import Literal

Theme = Literal["light", "dark"]

#: The names of the colours of jobs.
JOB_COLOURS = tuple(f"c{hue}" for hue in range(10))

_LIGHT = {
    **{"card": "#ffffff", "sunk": "#f0f2f5", "line": "#dfe3e8", "line2": "#c6ccd4"},
    **{"ink": "#1a2027", "ink2": "#505b67", "ink3": "#626d79", "accent": "#3454d1"},
    **{"warn": "#8a5800", "bad": "#b42318"},
    **{"c0": "#c88537", "c1": "#976d18", "c2": "#716649", "c3": "#8d966f", "c4": "#527f78"},
    **{"c5": "#2a6d8f", "c6": "#4b94f3", "c7": "#6655bf", "c8": "#ad63bc", "c9": "#b17fa9"},
}
_DARK = {
    **{"card": "#151a21", "sunk": "#10151b", "line": "#262d37", "line2": "#3a4350"},
    **{"ink": "#e7ebf0", "ink2": "#a7b1bd", "ink3": "#8b96a3", "accent": "#90a8ff"},
    **{"warn": "#e3ad4b", "bad": "#ff8576"},
    **{"c0": "#b86a1d", "c1": "#b59a53", "c2": "#e6be21", "c3": "#add78e", "c4": "#6e856d"},
    **{"c5": "#44bea8", "c6": "#85d5e6", "c7": "#589bb5", "c8": "#9563c7", "c9": "#d58ff4"},
}


def palette(theme: Theme) -> dict[str, str]:
    """Return the colours of a theme by name; ``onN`` is the colour of text on the colour ``cN``."""
    colours = dict(_LIGHT if theme == "light" else _DARK)
    for hue, name in enumerate(JOB_COLOURS):
        colours[f"on{hue}"] = "#000000" if _luminance(colours[name]) > 0.18 else "#ffffff"
    return colours


def _luminance(colour: str) -> float:
    """Return the relative luminance (WCAG 2.2), from 0 to 1, of a colour such as ``#4477aa``."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
