"""Read from an experiment's definition which claims compare its cells, and what is plotted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pliant.simulator.experiments.definition.checks import (
    InvalidError,
    Place,
    check_one_of,
    mapping,
    number,
    required,
    tolerance,
)
from pliant.simulator.experiments.definition.definitions import (
    Cell,
    CellClaim,
    CurvePlot,
    Difference,
    Interpolation,
    Peak,
    Plot,
    Tolerance,
    Tree,
)
from pliant.simulator.multicluster.metric_names import DISTRIBUTIONS, SERIES

_CLAIM: Mapping[str, type] = {
    "metric": str,
    "of": object,
    "above": object,
    "below": object,
    "by": object,
    "at_most": object,
    "where": dict,
    "highest": dict,
}
_DIFFERENCE: Mapping[str, type] = {
    "source": str,
    "metric": str,
    "of": object,
    "below": object,
    "above": object,
    "in": str,
    "across": str,
    "printed": dict,
}
_INTERPOLATION: Mapping[str, type] = {
    "source": str,
    "metric": str,
    "at": dict,
    "along": str,
    "across": str,
    "printed": dict,
    "where": dict,
}
_PLOT: Mapping[str, type] = {
    "y": str,
    "x": str,
    "lines": str,
    "where": dict,
    "log_x": bool,
    "log_y": bool,
}
_CURVE: Mapping[str, type] = {"curve": str, "lines": str, "where": dict}


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names that the claims and plots of an experiment may use."""

    axes: Mapping[str, list[Any]]
    metrics: list[str]
    compare: str
    cells: tuple[Cell, ...]

    def values(self, place: Place, tree: object) -> Tree:
        """Check and return the values by axis that select cells for a claim or a plot.

        Args:
            place: the position of ``tree`` in the definition, for errors.
            tree: a mapping from axes to values, or only the name of a variant.

        Raises:
            InvalidError: an axis or a value is not known.
        """
        if not isinstance(tree, dict):
            if not self.compare:
                raise InvalidError(place, f"expected axis: value, not {tree!r}")
            tree = {self.compare: tree}
        for axis, wanted in tree.items():
            check_one_of((*place, axis), axis, self.axes)
            for value in wanted if isinstance(wanted, list) else [wanted]:
                check_one_of((*place, axis), value, self.axes[axis])
        return tree

    def metric(self, place: Place, tree: Tree) -> str:
        """Return the metric that ``tree`` names; it must be one that the experiment knows."""
        required(place, tree, ("metric",))
        check_one_of((*place, "metric"), tree["metric"], self.metrics)
        return str(tree["metric"])


def read_claims(
    claims: list[Any], known: KnownNames
) -> tuple[tuple[CellClaim, ...], tuple[Peak, ...]]:
    """Read the claims of an experiment: comparisons of cells, and positions of a maximum.

    A cell is one combination of the experiment's parameters.
    """
    differences, peaks = [], []
    for index, tree in enumerate(claims):
        place: Place = ("claims", index)
        entries = mapping(place, tree, _CLAIM)
        if "highest" in entries:
            peaks.append(_peak(place, entries, known))
        else:
            differences.append(_claim(place, entries, known))
    return tuple(differences), tuple(peaks)


def _claim(place: Place, entries: Tree, known: KnownNames) -> CellClaim:
    required(place, entries, ("of",))
    of, than, above = _sides(place, entries, known)
    by = tolerance((*place, "by"), entries["by"]) if "by" in entries else Tolerance(0.0)
    where = known.values((*place, "where"), entries.get("where", {}))
    most = tolerance((*place, "at_most"), entries["at_most"]) if "at_most" in entries else None
    if most is not None and (most.relative != by.relative or most.amount < by.amount):
        raise InvalidError((*place, "at_most"), f"expected at least {by}, as in by, not {most}")
    return CellClaim(known.metric(place, entries), of, than, above, by, where, most)


def _sides(place: Place, entries: Tree, known: KnownNames) -> tuple[Tree, Tree, bool]:
    """Return the two compared sides of a claim, and whether the first should be the larger one."""
    if ("above" in entries) == ("below" in entries):
        raise InvalidError(place, "expected either above or below")
    side = "above" if "above" in entries else "below"
    of = known.values((*place, "of"), entries["of"])
    than = known.values((*place, side), entries[side])
    if set(of) != set(than):
        raise InvalidError((*place, side), f"name the same axes as in of: {', '.join(of)}")
    return of, than, side == "above"


def _peak(place: Place, entries: Tree, known: KnownNames) -> Peak:
    highest = known.values((*place, "highest"), entries["highest"])
    if len(highest) != 1:
        raise InvalidError((*place, "highest"), "expected one axis with a list of values")
    axis, at = next(iter(highest.items()))
    where = known.values((*place, "where"), entries.get("where", {}))
    values = tuple(at) if isinstance(at, list) else (at,)
    return Peak(known.metric(place, entries), axis, values, where)


def read_differences(trees: list[Any], known: KnownNames) -> tuple[Difference, ...]:
    """Read the entries of ``differences``: differences between two runs that the paper states."""
    found = []
    for index, tree in enumerate(trees):
        place: Place = ("differences", index)
        entries = mapping(place, tree, _DIFFERENCE)
        required(place, entries, ("source", "of", "in", "across", "printed"))
        of, than, above = _sides(place, entries, known)
        check_one_of((*place, "in"), entries["in"], ("points", "percent"))
        axis = entries["across"]
        printed = _printed(place, entries, axis, known)
        metric, relative = known.metric(place, entries), entries["in"] == "percent"
        sign = 1 if above else -1
        found.append(Difference(entries["source"], metric, of, than, axis, relative, sign, printed))
    return tuple(found)


def _printed(place: Place, entries: Tree, axis: str, known: KnownNames) -> dict[Any, float]:
    check_one_of((*place, "across"), axis, known.axes)
    printed: dict[Any, float] = {}
    for value, amount in entries["printed"].items():
        check_one_of((*place, "printed", str(value)), value, known.axes[axis])
        printed[value] = number((*place, "printed", str(value)), amount)
    return printed


def read_interpolations(trees: list[Any], known: KnownNames) -> tuple[Interpolation, ...]:
    """Read the entries of ``interpolations``: values that the paper states for points on curves."""
    found = []
    for index, tree in enumerate(trees):
        place: Place = ("interpolations", index)
        entries = mapping(place, tree, _INTERPOLATION)
        required(place, entries, ("source", "at", "along", "across", "printed"))
        if len(entries["at"]) != 1:
            raise InvalidError((*place, "at"), "expected one metric with its value")
        other, value = next(iter(entries["at"].items()))
        check_one_of((*place, "at", other), other, known.metrics)
        check_one_of((*place, "along"), entries["along"], known.axes)
        found.append(
            Interpolation(
                source=entries["source"],
                metric=known.metric(place, entries),
                other=other,
                along=entries["along"],
                value=number((*place, "at", other), value),
                axis=entries["across"],
                printed=_printed(place, entries, entries["across"], known),
                where=known.values((*place, "where"), entries.get("where", {})),
            )
        )
    return tuple(found)


def read_plots(trees: list[Any], known: KnownNames) -> tuple[Plot, ...]:
    """Read the plots of an experiment."""
    found = []
    for index, tree in enumerate(trees):
        place: Place = ("plots", index)
        entries = mapping(place, tree, _PLOT)
        required(place, entries, ("x", "y"))
        check_one_of((*place, "y"), entries["y"], known.metrics)
        for key in ("x", "lines"):
            if entries.get(key):
                check_one_of((*place, key), entries[key], known.axes)
        where = known.values((*place, "where"), entries.get("where", {}))
        rest = set(known.axes) - {entries["x"], entries.get("lines", ""), *where}
        if rest:
            axis = min(rest)
            raise InvalidError(place, f"where: does not say which {axis}")
        found.append(
            Plot(
                metric=entries["y"],
                x=entries["x"],
                lines=entries.get("lines", ""),
                where=where,
                log_x=entries.get("log_x", False),
                log_y=entries.get("log_y", False),
            )
        )
    return tuple(found)


def read_curves(trees: list[Any], known: KnownNames) -> tuple[CurvePlot, ...]:
    """Read the plots of distributions and of values over time."""
    found = []
    for index, tree in enumerate(trees):
        place: Place = ("curves", index)
        entries = mapping(place, tree, _CURVE)
        required(place, entries, ("curve",))
        check_one_of((*place, "curve"), entries["curve"], (*DISTRIBUTIONS, *SERIES))
        lines = entries.get("lines", "")
        if lines:
            check_one_of((*place, "lines"), lines, known.axes)
        where = known.values((*place, "where"), entries.get("where", {}))
        for axis in sorted(set(known.axes) - {lines, *where}):
            raise InvalidError(place, f"where: does not say which {axis}")
        found.append(CurvePlot(entries["curve"], lines, where))
    return tuple(found)
