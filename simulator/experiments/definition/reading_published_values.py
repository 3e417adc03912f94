"""Read the tables of the paper, and values of theory, from the definition of an experiment."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pliant.simulator.experiments.definition.checks import (
    InvalidError,
    Place,
    check_one_of,
    free_mapping,
    mapping,
    number,
    required,
)
from pliant.simulator.experiments.definition.definitions import Tree

#: The name of the direction of a table whose columns or rows are metrics.
METRIC = "metric"
_TABLE: Mapping[str, type] = {
    "source": str,
    "metric": str,
    "where": dict,
    "down": str,
    "across": str,
    "columns": list,
    "rows": dict,
    "doubtful": list,
}
_DOUBTFUL: Mapping[str, type] = {"at": list, "because": str}


@dataclass(slots=True)
class Expected:
    """The values that the paper states for one cell, by metric, and why some are doubtful.

    A cell is one combination of the experiment's parameters.
    """

    values: dict[str, float] = field(default_factory=dict)
    doubtful: dict[str, str] = field(default_factory=dict)


#: By the values of all axes.
Printed = dict[frozenset[tuple[str, Any]], Expected]


def read_printed(tables: list[Any], axes: Mapping[str, list[Any]], metrics: list[str]) -> Printed:
    """Read the tables of values that the paper states.

    Args:
        tables: the list ``printed`` of a definition.
        axes: the values of each axis of the experiment.
        metrics: the names of its metrics.

    Raises:
        InvalidError: a table is invalid.
    """
    found: Printed = {}
    for index, tree in enumerate(tables):
        place: Place = ("printed", index)
        table = mapping(place, tree, _TABLE)
        required(place, table, ("source", "down", "rows"))
        for at, setup, metric, value in _values(place, table, {**axes, METRIC: metrics}):
            check_one_of((*at, METRIC), metric, metrics)
            expected = found.setdefault(frozenset(setup.items()), Expected())
            if metric in expected.values:
                raise InvalidError(at, f"{metric} of this row is printed in an earlier table too")
            expected.values[metric] = value
            why = _doubt(place, table, setup, metric)
            if why:
                expected.doubtful[metric] = why
    return found


def _values(
    place: Place, table: Tree, known: Mapping[str, list[Any]]
) -> Iterator[tuple[Place, dict[str, Any], str, float]]:
    """Yield each value of a table of the paper: (place, values of the axes, metric, value).

    Args:
        place: the position of the table in the definition, for errors.
        table: one entry of ``printed``.
        known: the valid values of each axis, and the known metrics.

    Raises:
        InvalidError: the table names an unknown axis, value or metric.
    """
    fixed = {**free_mapping((*place, "where"), table.get("where"))}
    if METRIC in table:
        fixed[METRIC] = table[METRIC]
    down, across = table["down"], table.get("across", "")
    columns = table.get("columns", [])
    for key in ("down", "across"):
        if table.get(key):
            check_one_of((*place, key), table[key], known)
    for position, column in enumerate(columns):
        check_one_of((*place, "columns", position), column, known[across] if across else ())
    for axis, value in fixed.items():
        check_one_of((*place, axis if axis == METRIC else "where"), axis, known)
        check_one_of((*place, axis if axis == METRIC else "where"), value, known[axis])
    missing = set(known) - {*fixed, down, across}
    if missing:
        raise InvalidError(place, f"where: does not say which {', '.join(sorted(missing))}")
    for row, values in table["rows"].items():
        at = (*place, "rows", str(row))
        check_one_of(at, row, known[down])
        cells = values if across else [values]
        if not isinstance(cells, list) or len(cells) != len(columns or [None]):
            raise InvalidError(at, f"expected {len(columns)} values as in columns, not {values!r}")
        for column, value in zip(columns or [None], cells, strict=True):
            if value is None:
                continue
            setup = {**fixed, down: row, **({across: column} if across else {})}
            metric = str(setup.pop(METRIC))
            yield at, setup, metric, number(at, value)


def _doubt(place: Place, table: Tree, setup: Tree, metric: str) -> str:
    """Return why a value in the paper is doubtful, as the definition says; empty if it is not."""
    for index, tree in enumerate(table.get("doubtful", [])):
        at = (*place, "doubtful", index)
        entry = mapping(at, tree, _DOUBTFUL)
        required(at, entry, _DOUBTFUL)
        known = {*setup.values(), metric}
        if all(value in known for value in entry["at"]):
            return str(entry["because"])
    return ""


def read_theory(
    place: Place, tree: Tree, metrics: list[str], variants: list[str]
) -> dict[str, dict[str, float | str]]:
    """Read the values that theory predicts, as numbers or names of formulas.

    Returns:
        The values by variant and metric. If there are no variants, the only key is "".

    Raises:
        InvalidError: a variant, a metric or a formula is not known.
    """
    found: dict[str, dict[str, float | str]] = {}
    for variant, values in (tree if variants else {"": tree}).items():
        at = (*place, variant) if variants else place
        if variants:
            check_one_of(at, variant, variants)
        for metric, value in free_mapping(at, values).items():
            check_one_of((*at, metric), metric, metrics)
            _check_formula((*at, metric), value)
        found[str(variant)] = dict(values)
    return found


def _check_formula(place: Place, value: object) -> None:
    from pliant.simulator.experiments.queueing_theory import FORMULAS

    if not (isinstance(value, str) and value in FORMULAS):
        try:
            number(place, value)
        except InvalidError:
            raise InvalidError(
                place, f"expected a number or one of {', '.join(FORMULAS)}, not {value!r}"
            ) from None
