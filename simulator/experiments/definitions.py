"""Experiments as data: runs, printed values and values of theory. One YAML file for each.

A file of ``examples/experiments`` reads::

    title: ...
    source: paper, section, table
    about: what is important for the comparison
    run: {workload: kumar, parameters: {...}, strategy: equipartition, options: {...}}
    seeds: 5
    compare: class
    variants:                      # the columns of the table; each may change any part of `run`
      adaptive: {parameters: {job_class: adaptive}}
    references: {...}              # like variants, but run for the claims only
    vary: {mean_interarrival_s: gap}       # this part of `setup` is a parameter of the workload
    metrics: {utilization: {within: 0.015}, profit: {within: 3 %}}
    claims: [{metric: profit, of: adaptive, above: traditional}]
    rows:
      - setup: {mean_interarrival_s: 500}
        seeds: 3                   # instead of those above
        run: {...}                 # changes of `run` for this row
        printed: {adaptive: {utilization: 0.128}}
        theory: {adaptive: {utilization: offered-load}}    # a number, or the name of a formula

``run`` also knows ``processors``, ``jobs``, ``transform`` (malleable, sizes, speedup, spread,
evolving, shrinking_factor), ``settings`` of the simulator, and ``warm_up``, the number of first
jobs that are left out of mean response times. Costs in the settings, and sizes and speedups of
malleable jobs, are written as on the command line (``0.5-2``, ``p/2-2p``, ``downey:p,1``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pliant.core.support.duplicate_keys import find_duplicate_key
from pliant.simulator.inputs.errors import SimulationError

#: A mapping as read from YAML.
Tree = Mapping[str, Any]

_RUN = {
    "workload": str,
    "parameters": dict,
    "transform": dict,
    "processors": int,
    "jobs": int,
    "warm_up": int,
    "strategy": str,
    "options": dict,
    "settings": dict,
}
_TOP = {
    "title": str,
    "source": str,
    "about": str,
    "run": dict,
    "seeds": int,
    "compare": str,
    "variants": dict,
    "references": dict,
    "vary": dict,
    "metrics": dict,
    "claims": list,
    "rows": list,
}
_ROW = {"setup": dict, "seeds": int, "run": dict, "printed": dict, "theory": dict}
_CLAIM = {"metric": str, "of": str, "above": str, "below": str}
_KINDS = {str: "text", int: "a whole number", dict: "a mapping", list: "a list"}


class ExperimentError(SimulationError, ValueError):
    """An experiment is not known, cannot be read, or is invalid. The message says where."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a value may differ from an expected one and still agree."""

    amount: float
    relative: bool = False

    def allows(self, value: float, expected: float) -> bool:
        """Return whether a value agrees with the expected one."""
        return abs(value - expected) <= self.margin(expected)

    def margin(self, expected: float) -> float:
        """Return the allowed difference from the expected value."""
        return self.amount * abs(expected) if self.relative else self.amount

    def __str__(self) -> str:
        return f"{self.amount * 100:g} %" if self.relative else f"{self.amount:g}"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its name in the table, its name in the results, and its tolerance."""

    name: str
    source: str
    #: The tolerance for printed values; None if only theory is compared.
    within: Tolerance | None = None

    def scaled(self, share: float) -> "Metric":
        """Return the metric for a share of the jobs, if it is a total."""
        if share == 1.0 or self.within is None or self.within.relative:
            return self
        return Metric(self.name, self.source, Tolerance(self.within.amount * share))


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper: one variant is above (or below) another in a metric, in every row."""

    metric: str
    of: str
    than: str
    above: bool

    def __str__(self) -> str:
        return f"{self.metric} {'above' if self.above else 'below'} {self.than}"


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a table: its setup and the expected values of each variant."""

    setup: Tree
    #: The number of seeds; fewer for overloaded systems, which take long and hardly vary.
    seeds: int
    run: Tree
    #: Printed values by variant, then by metric.
    printed: Mapping[str, Mapping[str, float]]
    theory: Mapping[str, Mapping[str, float | str]]


@dataclass(frozen=True, slots=True)
class Experiment:
    """The definition of an experiment."""

    name: str
    title: str
    source: str
    about: str
    compare: str
    run: Tree
    variants: Mapping[str, Tree]
    references: Mapping[str, Tree]
    vary: Mapping[str, str]
    metrics: tuple[Metric, ...]
    claims: tuple[Claim, ...]
    rows: tuple[TableRow, ...] = field(repr=False)

    def spec(self, row: TableRow, variant: str) -> dict[str, Any]:
        """Return the run for one variant of one row. Later layers override earlier ones."""
        varied = {self.vary[key]: value for key, value in row.setup.items() if key in self.vary}
        chosen = self.variants.get(variant) or self.references.get(variant) or {}
        result: dict[str, Any] = {}
        for layer in (self.run, {"parameters": varied}, row.run, chosen):
            for key, value in layer.items():
                inner = isinstance(value, Mapping)
                result[key] = {**result.get(key, {}), **value} if inner else value
        return result


def folder() -> Path:
    """Return the folder of the experiments in the package."""
    import importlib.resources  # Imported here because it loads tempfile, random and zipfile.

    return Path(str(importlib.resources.files("pliant.examples"))) / "experiments"


def known_experiments() -> dict[str, Path]:
    """Return the files of the experiments that are part of Pliant, by name."""
    paths = sorted(folder().glob("*.yaml"), key=lambda path: path.stem)
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
        ExperimentError: the file cannot be read or is invalid. The message says where.
    """
    import yaml

    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
        document = loader.get_single_node()
        if fault := find_duplicate_key(document):
            raise ExperimentError(f"{path}: {fault}")
        tree = loader.construct_document(document) if document else None
    except OSError as error:
        raise ExperimentError(f"{path}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    try:
        return _experiment(path.stem, tree)
    except ExperimentError as error:
        raise ExperimentError(f"{path}: {error}") from None


def _experiment(name: str, tree: object) -> Experiment:
    top = _mapping("", tree, _TOP)
    for key in ("title", "source", "run", "variants", "metrics", "rows"):
        if not top.get(key):
            raise ExperimentError(f"{key}: expected {_KINDS[_TOP[key]]}, there is none")
    variants, references = _runs("variants", top), _runs("references", top)
    metrics = tuple(_metric(f"metrics.{key}", key, it) for key, it in top["metrics"].items())
    names = {metric.name for metric in metrics}
    seeds = _seeds("seeds", top, 5)
    return Experiment(
        name=name,
        title=top["title"],
        source=top["source"],
        about=top.get("about", "").strip(),
        compare=top.get("compare", "variant"),
        run=_mapping("run", top["run"], _RUN),
        variants=variants,
        references=references,
        vary=top.get("vary", {}),
        metrics=metrics,
        claims=tuple(
            _claim(f"claims[{place}]", item, names, {*variants, *references})
            for place, item in enumerate(top.get("claims", []))
        ),
        rows=tuple(
            _row(f"rows[{place}]", item, names, set(variants), seeds)
            for place, item in enumerate(top["rows"])
        ),
    )


def _mapping(where: str, tree: object, known: Mapping[str, type]) -> Tree:
    """Check the keys of a mapping and the types of its values."""
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ExperimentError(f"{where or 'the file'}: expected a mapping, not {tree!r}")
    for key, value in tree.items():
        place = f"{where}.{key}" if where else f"{key}"
        if key not in known:
            raise ExperimentError(f"{place}: not known here; known are: {', '.join(known)}")
        if not isinstance(value, known[key]) or isinstance(value, bool):
            raise ExperimentError(f"{place}: expected {_KINDS[known[key]]}, not {value!r}")
    return tree


def _runs(key: str, top: Tree) -> dict[str, Tree]:
    return {name: _mapping(f"{key}.{name}", tree, _RUN) for name, tree in top.get(key, {}).items()}


def _metric(where: str, name: str, tree: object) -> Metric:
    if tree is not None and not isinstance(tree, dict):
        raise ExperimentError(f"{where}: expected a mapping, not {tree!r}")
    entries = dict(tree or {})
    within, source = entries.pop("within", None), entries.pop("from", name)
    if entries:
        raise ExperimentError(f"{where}.{min(entries)}: not known here; known are: within, from")
    return Metric(name, str(source), None if within is None else _tolerance(where, within))


def _tolerance(where: str, value: object) -> Tolerance:
    text = str(value).strip()
    try:
        amount = float(text.removesuffix("%"))
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        raise ExperimentError(f"{where}.within: expected like 0.015 or 3 %, not {value!r}")
    return Tolerance(amount / 100, True) if text.endswith("%") else Tolerance(amount)


def _claim(where: str, tree: object, metrics: set[str], variants: set[str]) -> Claim:
    entries = _mapping(where, tree, _CLAIM)
    if ("above" in entries) == ("below" in entries):
        raise ExperimentError(f"{where}: expected either above or below")
    above = "above" in entries
    than = entries["above" if above else "below"]
    _among(f"{where}.metric", [entries.get("metric")], metrics)
    _among(where, [entries.get("of"), than], variants)
    return Claim(entries["metric"], entries["of"], than, above)


def _seeds(where: str, tree: Tree, default: int) -> int:
    seeds: int = tree.get("seeds", default)
    if seeds < 2:
        raise ExperimentError(f"{where}: expected at least 2, not {seeds}")
    return seeds


def _row(where: str, tree: object, metrics: set[str], variants: set[str], seeds: int) -> TableRow:
    entries = _mapping(where, tree, _ROW)
    if not entries.get("setup"):
        raise ExperimentError(f"{where}.setup: expected a mapping, there is none")
    for key in ("printed", "theory"):
        _among(f"{where}.{key}", entries.get(key, {}), variants)
        for variant, values in entries.get(key, {}).items():
            if not isinstance(values, dict):
                raise ExperimentError(f"{where}.{key}.{variant}: expected a mapping")
            _among(f"{where}.{key}.{variant}", values, metrics)
            _check_values(f"{where}.{key}.{variant}", values, names=key == "theory")
    run = _mapping(f"{where}.run", entries.get("run"), _RUN)
    return TableRow(
        setup=entries["setup"],
        seeds=_seeds(f"{where}.seeds", entries, seeds),
        run=run,
        printed=entries.get("printed", {}),
        theory=entries.get("theory", {}),
    )


def _among(where: str, names: Any, known: set[str]) -> None:
    for name in names:
        if name not in known:
            raise ExperimentError(f"{where}: {name!r} is none of {', '.join(sorted(known))}")


def _check_values(where: str, values: Tree, *, names: bool) -> None:
    from pliant.simulator.experiments.queueing_theory import FORMULAS

    for key, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number or (names and value in FORMULAS)):
            also = f" or one of {', '.join(FORMULAS)}" if names else ""
            raise ExperimentError(f"{where}.{key}: expected a number{also}, not {value!r}")
