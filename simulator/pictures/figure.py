"""The common look of all pictures, and how they are written to files."""

import importlib.util
import io
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Format = Literal["svg", "png"]

#: Okabe and Ito's colours, which people with colour vision deficiencies can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GRID = "#d9dde2"
#: The units of time axes, in seconds.
_UNITS = ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"))
_PNG_DOTS_PER_INCH = 110


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def new_figure(width: float = 9.0, height: float = 5.0) -> "Figure":
    """Return an empty figure. Sizes are in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def titled_axes(figure: "Figure", title: str, x: str, y: str) -> Any:
    """Add axes with titles and a grid to a figure, and return them."""
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    return axes


def legend_outside(axes: Any) -> None:
    """Add a legend to the right of the axes, where it hides nothing."""
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))


def time_unit(seconds: float) -> tuple[int, str]:
    """Return a unit of time for an axis of this length: the seconds of the unit, and its name."""
    return next((unit for unit in _UNITS if seconds >= 2 * unit[0]), _UNITS[-1])


def encoded(figure: "Figure", kind: Format) -> bytes:
    """Return a figure as the contents of a file. The same figure gives the same bytes."""
    import matplotlib

    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with matplotlib.rc_context({"svg.hashsalt": "pliant", "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, dpi=_PNG_DOTS_PER_INCH, metadata=metadata)
    return buffer.getvalue()


def format_of(path: str) -> Format:
    """Return the format of a file: PNG if its name ends with ``.png``, otherwise SVG."""
    return "png" if path.lower().endswith(".png") else "svg"
