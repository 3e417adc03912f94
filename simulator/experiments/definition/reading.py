"""Read the YAML files of experiments. The format is described in ``docs/experiments.md``."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pliant.simulator.experiments.definition.checks import (
    InvalidError,
    Place,
    line_of,
    mapping,
    read_yaml,
    required,
    tolerance,
)
from pliant.simulator.experiments.definition.definitions import (
    Cell,
    Experiment,
    ExperimentError,
    Metric,
    Tree,
    is_list,
)
from pliant.simulator.experiments.definition.reading_claims import (
    KnownNames,
    read_claims,
    read_curves,
    read_differences,
    read_interpolations,
    read_plots,
)
from pliant.simulator.experiments.definition.reading_published_values import (
    Expected,
    read_printed,
    read_theory,
)

_RUN: Mapping[str, type] = {
    "workload": str,
    "parameters": dict,
    "job_list": list,
    "transform": dict,
    "processors": int,
    "jobs": int,
    "warm_up": int,
    "strategy": str,
    "options": dict,
    "settings": dict,
    "time_shared": dict,
    "multicluster": dict,
}
_TOP: Mapping[str, type] = {
    "title": str,
    "source": str,
    "about": str,
    "assumed": dict,
    "not_reproducible": str,
    "run": dict,
    "seeds": int,
    "compare": str,
    "variants": dict,
    "references": dict,
    "vary": dict,
    "sweep": dict,
    "rows": list,
    "metrics": dict,
    "printed": list,
    "theory": dict,
    "claims": list,
    "differences": list,
    "interpolations": list,
    "plots": list,
    "curves": list,
    "labels": dict,
}
_ROW: Mapping[str, type] = {"setup": dict, "seeds": int, "run": dict, "theory": dict}


def folder() -> Path:
    """Return the folder of the experiments in the package."""
    import importlib.resources  # Imported here because it loads tempfile, random and zipfile.

    return Path(str(importlib.resources.files("pliant.examples"))) / "experiments"


def known_experiments() -> dict[str, Path]:
    """Return the experiments that are part of Pliant: the path of each file, by name."""
    paths = sorted(folder().glob("*.yaml"), key=lambda path: _natural(path.stem))
    return {path.stem: path for path in paths}


def find_experiment(name: str) -> Experiment:
    """Return an experiment by its name, or by the path of its file.

    Raises:
        ExperimentError: the experiment does not exist or is invalid.
    """
    known = known_experiments()
    if name in known:
        return read_experiment(known[name])
    if name.endswith((".yaml", ".yml")):
        return read_experiment(Path(name))
    raise ExperimentError(f"there is no experiment {name!r}; there are: {', '.join(known)}")


def read_experiment(path: Path) -> Experiment:
    """Read the definition of an experiment.

    Raises:
        ExperimentError: the file cannot be read or is invalid. The message names the line and key.
    """
    tree, root = read_yaml(path)
    try:
        return _experiment(path.stem, tree)
    except InvalidError as error:
        line = line_of(root, error.place)
        raise ExperimentError(f"{path}: line {line}: {error}") from None


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sorting key for names with numbers: 6.10 comes after 6.9."""
    parts = name.replace("-", ".").split(".")
    return [(int(part) if part.isdigit() else -1, part) for part in parts]


def _experiment(name: str, tree: object) -> Experiment:
    top = mapping((), tree, _TOP)
    required((), top, ("title", "source", "run", "metrics"))
    if not (top.get("sweep") or top.get("rows")):
        raise InvalidError(("sweep",), "is missing; give a sweep, rows, or both")
    metrics = tuple(_metric(("metrics", key), key, value) for key, value in top["metrics"].items())
    runs = _Runs(top, [metric.name for metric in metrics])
    cells = tuple(runs.cells())
    known = KnownNames(runs.axes, [metric.name for metric in metrics], runs.compare, cells)
    claims, peaks = read_claims(top.get("claims", []), known)
    return Experiment(
        name=name,
        title=top["title"],
        source=top["source"],
        about=top.get("about", "").strip(),
        compare=runs.compare,
        metrics=metrics,
        cells=cells,
        claims=claims,
        peaks=peaks,
        differences=read_differences(top.get("differences", []), known),
        interpolations=read_interpolations(top.get("interpolations", []), known),
        plots=read_plots(top.get("plots", []), known),
        curves=read_curves(top.get("curves", []), known),
        labels={str(key): str(value) for key, value in top.get("labels", {}).items()},
        assumed={str(key): str(value).strip() for key, value in top.get("assumed", {}).items()},
        not_reproducible=top.get("not_reproducible", "").strip(),
    )


class _Runs:
    """Reads an experiment's parameters, and yields its cells, each with the definition of its run.

    A cell is one combination of parameter values.
    """

    def __init__(self, top: Tree, metrics: list[str]) -> None:
        self._run = mapping(("run",), top["run"], _RUN)
        self._variants = _named_runs("variants", top)
        self._references = _named_runs("references", top)
        self.compare: str = top.get("compare", "variant") if self._variants else ""
        if self._references and not self._variants:
            raise InvalidError(("references",), "need variants with which they are compared")
        self._seeds = _seeds(("seeds",), top, 5)
        self._sweep = {
            str(axis): _values(("sweep", axis), values)
            for axis, values in top.get("sweep", {}).items()
        }
        self._paths = {
            axis: _path(("vary", axis), path) for axis, path in top.get("vary", {}).items()
        }
        for axis in self._sweep:
            if axis not in self._paths:
                raise InvalidError(("sweep", axis), "is not in vary, which says what it changes")
        self._rows = [_row(("rows", place), row) for place, row in enumerate(top.get("rows", []))]
        #: The values of each axis.
        self.axes: dict[str, list[Any]] = {axis: [] for axis in self._sweep}
        for setup, _ in self._setups():
            for axis, value in setup.items():
                if value not in self.axes.setdefault(axis, []):
                    self.axes[axis].append(value)
        if self._variants:
            self.axes[self.compare] = [*self._variants, *self._references]
        self._printed = read_printed(top.get("printed", []), self.axes, metrics)
        names = list(self._variants)
        self._theory = read_theory(("theory",), top.get("theory", {}), metrics, names)
        self._theory_of_rows = [
            read_theory(("rows", place, "theory"), row.get("theory", {}), metrics, names)
            for place, row in enumerate(self._rows)
        ]

    def cells(self) -> Iterator[Cell]:
        """Yield a cell for each combination of parameters and variant, in the table's order."""
        for setup, rows in self._setups():
            for variant in [*self._variants, *self._references] or [""]:
                full = {**setup, self.compare: variant} if self.compare else setup
                expected = self._printed.get(frozenset(full.items()), Expected())
                yield Cell(
                    setup=full,
                    spec=self._spec(setup, rows, variant),
                    seeds=next((row["seeds"] for row in rows if "seeds" in row), self._seeds),
                    printed=expected.values,
                    doubtful=expected.doubtful,
                    theory=self._theory_of(rows, variant),
                    is_reference=variant in self._references,
                )

    def _theory_of(self, rows: list[Tree], variant: str) -> dict[str, float | str]:
        found = {**self._theory.get(variant, {})}
        for row, theory in zip(self._rows, self._theory_of_rows, strict=True):
            if any(row is each for each in rows):
                found |= theory.get(variant, {})
        return found

    def _setups(self) -> Iterator[tuple[dict[str, Any], list[Tree]]]:
        """Yield each combination of the axes' values, with the entries of ``rows`` for it.

        ``rows`` is a list in the definition. Each entry changes the run of some combinations.
        """
        if not self._sweep:
            for row in self._rows:
                yield dict(row["setup"]), [row]
            return
        used: set[int] = set()
        for values in itertools.product(*self._sweep.values()):
            setup = dict(zip(self._sweep, values, strict=True))
            found = [
                place
                for place, row in enumerate(self._rows)
                if row["setup"].items() <= setup.items()
            ]
            used.update(found)
            yield setup, [self._rows[place] for place in found]
        for place, row in enumerate(self._rows):
            if place not in used:
                raise InvalidError(
                    ("rows", place, "setup"), f"no row of the sweep has {dict(row['setup'])}"
                )

    def _spec(self, setup: Tree, rows: list[Tree], variant: str) -> dict[str, Any]:
        """Return the definition of a cell's run.

        It is merged from four sources, of which later ones override earlier ones: the definition
        that all cells share, the values of the axes, the matching entries of ``rows``, and the
        variant.
        """
        varied: dict[str, Any] = {}
        for axis, value in setup.items():
            if axis in self._paths:
                head, _, key = self._paths[axis].partition(".")
                varied[head] = {**varied.get(head, {}), key: value} if key else value
        chosen = self._variants.get(variant) or self._references.get(variant) or {}
        result: dict[str, Any] = {}
        for layer in (self._run, varied, *(row.get("run", {}) for row in rows), chosen):
            for key, value in layer.items():
                inner = isinstance(value, Mapping)
                result[key] = {**result.get(key, {}), **value} if inner else value
        return result


def _named_runs(key: str, top: Tree) -> dict[str, Tree]:
    return {str(name): mapping((key, name), tree, _RUN) for name, tree in top.get(key, {}).items()}


def _values(place: Place, values: object) -> list[Any]:
    if not is_list(values) or not values:
        raise InvalidError(place, f"expected a list of values, not {values!r}")
    assert isinstance(values, list)
    for index, value in enumerate(values):
        if isinstance(value, dict | list):
            raise InvalidError((*place, index), f"expected a number or a text, not {value!r}")
        if value in values[:index]:
            raise InvalidError((*place, index), f"{value!r} is in the list twice")
    return values


def _path(place: Place, path: object) -> str:
    """Check the path of a key in a run, such as ``jobs`` or ``parameters.gap``, and return it."""
    head, dot, key = str(path).partition(".")
    if head not in _RUN or _RUN[head] is list or bool(key) != (_RUN[head] is dict):
        nested = [name for name, kind in _RUN.items() if kind is dict]
        plain = [name for name, kind in _RUN.items() if kind in (str, int)]
        raise InvalidError(
            place,
            f"{path!r} is not a part of a run: write one of {', '.join(plain)}, "
            f"or a key of {', '.join(nested)}, as in parameters.gap",
        )
    return f"{head}{dot}{key}"


def _row(place: Place, tree: object) -> Tree:
    row = mapping(place, tree, _ROW)
    required(place, row, ("setup",))
    if "seeds" in row:
        _seeds((*place, "seeds"), row, 0)
    mapping((*place, "run"), row.get("run"), _RUN)
    return row


def _seeds(place: Place, tree: Tree, default: int) -> int:
    seeds: int = tree.get("seeds", default)
    if seeds < 2:
        raise InvalidError(place, f"expected at least 2, not {seeds}")
    return seeds


def _metric(place: Place, name: str, tree: object) -> Metric:
    from pliant.simulator.experiments.running.tasks import is_metric

    entries = mapping(place, tree, {"within": object, "from": str})
    source = str(entries.get("from", name))
    if not is_metric(source):
        raise InvalidError(place, f"{source!r} is not a metric of the simulator")
    within = entries.get("within")
    return Metric(name, source, None if within is None else tolerance((*place, "within"), within))
