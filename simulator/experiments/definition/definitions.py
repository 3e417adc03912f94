"""Definitions of experiments: what is run, which values the paper states, and what it claims.

An experiment is a product of axes. Each combination of values is a cell, which is run with several
seeds. ``reading.py`` makes these classes from the YAML files of ``examples/experiments``, whose
format is described in ``docs/experiments.md``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pliant.simulator.inputs.simulation_errors import SimulationError

#: A mapping as read from YAML.
Tree = Mapping[str, Any]


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
    """A metric: its name in tables, its name in the results, and the tolerance of its values."""

    name: str
    source: str
    #: The tolerance for printed values; None if only theory is compared.
    within: Tolerance | None = None

    def scaled(self, share: float) -> "Metric":
        """Return the metric for runs that simulate only a share of the jobs.

        An absolute tolerance is multiplied by ``share``; a relative one does not change.
        """
        if share == 1.0 or self.within is None or self.within.relative:
            return self
        return Metric(self.name, self.source, Tolerance(self.within.amount * share))


@dataclass(frozen=True, slots=True)
class CellClaim:
    """A claim of the paper: a metric is higher (or lower) in some cells than in others.

    A cell is one combination of parameters of the experiment.
    """

    metric: str
    #: Values of axes of the cells that the claim is about, and of the cells they are compared with.
    #: Each pair of cells has the same values of all other axes.
    of: Tree
    than: Tree
    above: bool
    #: The smallest difference with which the claim holds.
    by: Tolerance = Tolerance(0.0)
    #: Values of axes, or lists of them, to which the claim is limited.
    where: Tree = field(default_factory=dict)
    #: The largest difference with which the claim holds; None if there is none.
    at_most: Tolerance | None = None

    def __str__(self) -> str:
        by = f" by at least {self.by}" if self.by.amount else ""
        if self.at_most is not None:
            by += f"{' and' if by else ' by'} at most {self.at_most}"
        return f"{self.metric} {'above' if self.above else 'below'} {name_of(self.than)}{by}"


@dataclass(frozen=True, slots=True)
class Peak:
    """A claim of the paper: along one parameter, a metric is highest at one of the given values."""

    metric: str
    axis: str
    at: tuple[Any, ...]
    where: Tree = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.metric} is highest at {self.axis} {', '.join(map(str, self.at))}"


@dataclass(frozen=True, slots=True)
class Difference:
    """Differences that the paper states between the values of two cells: ``of`` minus ``than``.

    A cell is one combination of parameters. There is one difference for each value of ``axis``.
    """

    source: str
    metric: str
    of: Tree
    than: Tree
    axis: str
    #: Whether the differences are percent of ``than``; otherwise they are 100 x the difference.
    relative: bool
    #: The sign that makes a decline of ``of`` positive, or a rise.
    sign: int
    printed: Mapping[Any, float | None]


@dataclass(frozen=True, slots=True)
class Interpolation:
    """Values that the paper states for curves, each at a position between measured points.

    An example is the utilization at a response time of 100 s, for each strategy. Each value of
    ``axis`` (a strategy) has one curve and one stated value. The curve has a point for each cell
    along the axis ``along``: its y is ``metric`` (the utilization), and its x is the metric
    ``other`` (the response time). The paper states y where x is ``value`` (100).
    """

    source: str
    metric: str
    #: The other metric, the points of the curve, and the place on it.
    other: str
    along: str
    value: float
    #: The axis that names the curves, with the printed value of each curve.
    axis: str
    printed: Mapping[Any, float]
    where: Tree = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot of a metric over an axis, with a line for each value of another axis."""

    metric: str
    x: str
    lines: str = ""
    where: Tree = field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class CurvePlot:
    """A plot of a distribution over the jobs, or of a value over time."""

    #: The distribution or the value.
    curve: str
    #: The axis with a line for each value; empty for one line.
    lines: str = ""
    where: Tree = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of an experiment's parameter values, with its run and expected results."""

    #: The value of each axis.
    setup: Tree
    #: The definition of the run, without the seed.
    spec: Tree
    #: The number of seeds; fewer for overloaded systems, which take long and hardly vary.
    seeds: int
    #: Printed values by metric.
    printed: Mapping[str, float]
    #: Why a printed value is doubtful, by metric. Such values are shown but not judged.
    doubtful: Mapping[str, str]
    #: Values of theory by metric: numbers, or names of formulas.
    theory: Mapping[str, float | str]
    #: Whether the cell is run for claims only.
    is_reference: bool = False

    def fits(self, where: Tree) -> bool:
        """Return whether the cell has the value that ``where`` gives for each axis in ``where``.

        If ``where`` gives a list for an axis, any value in the list will do.
        """
        return all(
            axis in self.setup and self.setup[axis] in (wanted if is_list(wanted) else (wanted,))
            for axis, wanted in where.items()
        )

    @property
    def label(self) -> str:
        """Return the values of all axes, as a text for users."""
        return name_of(self.setup) or "the only row"


@dataclass(frozen=True, slots=True)
class Experiment:
    """The definition of an experiment."""

    name: str
    title: str
    source: str
    about: str
    #: The axis whose values are the variants; empty if there are no variants.
    compare: str
    metrics: tuple[Metric, ...]
    cells: tuple[Cell, ...] = field(repr=False)
    claims: tuple[CellClaim, ...] = ()
    peaks: tuple[Peak, ...] = ()
    differences: tuple[Difference, ...] = ()
    interpolations: tuple[Interpolation, ...] = ()
    plots: tuple[Plot, ...] = ()
    curves: tuple[CurvePlot, ...] = ()
    #: Titles of axes and metrics, with units.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Parameters that the source does not give, with what was chosen and why.
    assumed: Mapping[str, str] = field(default_factory=dict)
    #: Why the printed values cannot be reproduced; empty if they can.
    not_reproducible: str = ""

    def metric(self, name: str) -> Metric:
        """Return a metric by its name in the tables."""
        return next(metric for metric in self.metrics if metric.name == name)

    def axes(self) -> dict[str, list[Any]]:
        """Return the values of each axis (parameter of the experiment).

        A value is left out if only reference cells have it, which are run only to compare others
        with them.
        """
        found: dict[str, list[Any]] = {}
        for cell in self.cells:
            if not cell.is_reference:
                for axis, value in cell.setup.items():
                    values = found.setdefault(axis, [])
                    if value not in values:
                        values.append(value)
        return found

    def find(self, setup: Tree) -> Cell | None:
        """Return the cell with exactly these parameter values; None if there is none."""
        return next((cell for cell in self.cells if dict(cell.setup) == dict(setup)), None)

    def matching(self, where: Tree) -> Iterator[Cell]:
        """Yield the cells (combinations of parameters) that have the values in ``where``, by axis.

        Reference cells, which are run only to compare others with them, are left out.
        """
        return (cell for cell in self.cells if not cell.is_reference and cell.fits(where))

    def label(self, name: str) -> str:
        """Return the title of an axis or a metric."""
        return self.labels.get(name, name.replace("_", " "))


def is_list(value: object) -> bool:
    """Return whether a value of a definition is a list."""
    return isinstance(value, list | tuple)


def name_of(setup: Tree) -> str:
    """Return the parameter values of a cell as a text, such as ``load 0.5, jobs 100``."""
    return ", ".join(f"{axis} {value}" for axis, value in setup.items())
