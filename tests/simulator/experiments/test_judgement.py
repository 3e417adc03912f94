"""Results are compared with printed values, with theory, and in pairs of one seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from corekit.experiments import SMALL, cell_of, pretend, small
from pliant.simulator.confidence import Interval
from pliant.simulator.experiments import verdicts
from pliant.simulator.experiments.definition.definitions import (
    Metric,
    Tolerance,
)
from pliant.simulator.experiments.definition.reading import (
    find_experiment,
    read_experiment,
)
from pliant.simulator.experiments.queueing_theory import theory_value
from pliant.simulator.experiments.results import Line, conclude
from pliant.simulator.experiments.running import measuring
from pliant.simulator.experiments.running.measuring import Scale, measure
from pliant.simulator.experiments.running.results_store import ResultsStore
from pliant.simulator.experiments.running.tasks import run_task, workload_of
from pliant.simulator.inputs.models import parameters


@pytest.mark.parametrize(
    ("formula", "parameters", "expected"),
    [
        (3, {}, 3.0),
        ("offered-load", {"gap": 200}, 0.3225),
        ("offered-load", {"gap": 64.5}, None),
        ("processor-sharing", {"gap": 100}, 64.5 / 0.355),
        ("processor-sharing", {"gap": 60}, None),
        ("rigid-load", {"gap": 200}, 0.3225),
        ("rigid-load", {"gap": 500, "minpe": "64", "speedup": "benchmark"}, 0.129),
        ("rigid-load", {"gap": 500, "minpe": "1", "speedup": "benchmark"}, 0.129 * 26.3 / 64),
        ("rigid-load", {"gap": 45, "minpe": "1-64", "speedup": "benchmark"}, None),
    ],
)
def test_theory_values_are_calculated_for_known_workloads(
    formula: str | float, parameters: dict[str, Any], expected: float | None
) -> None:
    found = theory_value(formula, {"workload": "kumar", "parameters": parameters})
    assert found == (None if expected is None else pytest.approx(expected))


def test_theory_of_rigid_jobs_is_what_was_printed() -> None:
    """Kumar's Table 4.3, traditional jobs; all printed values are about 4 % lower."""
    experiment = find_experiment("kumar-4.3")
    for cell in list(experiment.matching({"class": "traditional"}))[:5]:
        found = theory_value("rigid-load", cell.spec)
        assert found == pytest.approx(cell.printed["utilization"], rel=0.05)


@pytest.mark.parametrize(
    ("within", "mean", "printed", "theory", "verdict"),
    [
        ("0.3", 1.05, 1.0, None, verdicts.PRINTED),
        ("0.1", 10.05, 10.0, None, verdicts.PRINTED),  # partly within; the printed value is within
        ("0.1", 1.05, 1.0, None, verdicts.UNDECIDED),  # as are many others
        ("0.1", 1.15, 1.0, None, verdicts.UNDECIDED),
        ("0.1", 1.35, 1.0, None, verdicts.DIFFERS),
        ("0.3", 10.25, 10.0, None, verdicts.UNDECIDED),  # the mean alone is near
        ("0.1", 1.15, 1.0, 1.8, verdicts.UNDECIDED),
        ("10 %", 215, 200, None, verdicts.PRINTED),
        ("0.1", 1.5, 1.0, 1.45, verdicts.THEORY),
        ("0.1", 1.5, 1.0, 1.8, verdicts.DIFFERS),
        ("", 5.0, 1.0, 4.9, verdicts.THEORY),
        ("", 1.0, None, 1.1, verdicts.UNDECIDED),
        ("0.1", 1.5, 1.0, 1.65, verdicts.UNDECIDED),
        ("", 5.0, 1.0, 4.0, verdicts.DIFFERS),
        ("", 5.0, 1.0, None, verdicts.REPORTED),
        ("", 5.0, None, None, verdicts.REPORTED),
        ("0.1", 5.0, None, None, verdicts.REPORTED),
    ],
)
def test_a_value_is_judged_by_print_then_by_theory(
    within: str, mean: float, printed: float | None, theory: float | None, verdict: str
) -> None:
    relative = within.endswith("%")
    amount = float(within.removesuffix("%") or 0) / (100 if relative else 1)
    metric = Metric("m", "m", Tolerance(amount, relative) if within else None)
    ours = Interval(mean, mean - 0.2, mean + 0.2)
    theories = {} if theory is None else {"m": theory}
    assert verdicts.judge(metric, ours, printed, theories, runs=3) == verdict
    # A single run has no interval that could decide anything.
    few = verdicts.REPORTED if verdict == verdicts.REPORTED else verdicts.UNDECIDED
    assert verdicts.judge(metric, ours, printed, theories, runs=1) == few


def test_expected_totals_are_scaled_to_the_jobs_that_are_run(tmp_path: Path) -> None:
    text = SMALL.replace("mean_response_s: {}, utilization: {within: 5 %}", "profit: {within: 60}")
    text = text.replace("metric: utilization", "metric: profit").replace(
        "[utilization, mean_response_s]", "[profit]"
    )
    text = text.replace("[0.5, 1]", "[400]").replace(
        "mean_response_s: processor-sharing", "profit: 800"
    )
    experiment = read_experiment(small(tmp_path, text))
    cell = cell_of(experiment, **{"class": "adaptive"})
    usual = parameters("kumar")["jobs"]
    assert isinstance(usual, int)
    assert Scale(jobs=10).share_of_jobs(cell.spec) == 0.25
    assert Scale(jobs=100).share_of_jobs({"workload": "kumar"}) == 100 / usual
    assert Scale(jobs=10).share_of_jobs({"workload": "some.swf"}) == 1.0
    scale = Scale(seeds=2, jobs=10)
    measured = measure([experiment], ResultsStore(tmp_path), scale=scale, processes=1)[0]
    found = conclude(experiment, measured, scale).lines
    assert (found[0].printed, found[0].theory) == ({"profit": 100.0}, {"profit": 200.0})
    assert experiment.metrics[0].scaled(0.25).within == Tolerance(15.0)


@pytest.mark.parametrize(
    ("by_metric", "claims", "expected"),
    [
        ({"a": "as printed", "b": "reported"}, {}, "as printed"),
        ({"a": "as printed", "b": "as theory"}, {"x": True}, "as theory"),
        ({"a": "reported"}, {}, "reported"),
        ({"a": "as theory", "b": "too few runs"}, {"x": True}, "too few runs"),
        ({"a": "differs", "b": "as printed"}, {"p above q": False}, "differs: a, not p above q"),
        ({"a": "as printed"}, {"x": None}, "too few runs"),
    ],
)
def test_one_verdict_for_a_line(
    by_metric: dict[str, str], claims: dict[str, bool | None], expected: str
) -> None:
    assert verdicts.summary(by_metric, claims) == expected


@pytest.mark.parametrize(
    ("above", "mine", "other", "holds", "pairs", "told_apart"),
    [
        (True, (0.5, 0.7), (0.5 - 1e-12, 0.7 - 1e-12), True, 2, True),  # not of rounded values
        (True, (0.5, 0.7), (0.5, 0.7), False, 0, False),
        (True, (0.4, 0.9), (0.5, 0.7), True, 1, False),
        (False, (0.4, 0.9), (0.5, 0.7), False, 1, False),
        (False, (40.0, 90.0), (41.0, 91.0), True, 2, True),
    ],
)
def test_claims_are_judged_in_pairs_of_one_seed(
    above: bool,
    mine: Sequence[float],
    other: Sequence[float],
    holds: bool,
    pairs: int,
    told_apart: bool,
) -> None:
    found = verdicts.compare_pairs(mine, other, above=above)
    assert (found.holds, found.pairs, found.of) == (holds, pairs, 2)
    assert found.told_apart is told_apart
    # The spread is that of the differences, not that of the values.
    if mine[0] - other[0] == pytest.approx(mine[1] - other[1]):
        assert found.by.high - found.by.low < 1e-9


@pytest.mark.parametrize(("most", "holds"), [(0.15, True), (0.1, True), (0.08, False)])
def test_a_claim_may_have_a_largest_difference(most: float, holds: bool) -> None:
    found = verdicts.compare_pairs(
        (90.0, 180.0),
        (100.0, 200.0),
        above=False,
        by=Tolerance(0.05, relative=True),
        at_most=Tolerance(most, relative=True),
    )
    assert found.holds is holds


def test_both_classes_have_the_same_work_and_adaptive_jobs_are_done_first() -> None:
    experiment = find_experiment("kumar-4.2")
    classes = ({"mean_interarrival_s": 100, "class": name} for name in ("adaptive", "traditional"))
    spec = [cell_of(experiment, **setup).spec for setup in classes]
    for seed in (1, 2, 3):
        adaptive, traditional = (workload_of({**each, "jobs": 200}, seed).jobs for each in spec)
        pairs = list(zip(adaptive, traditional, strict=True))
        assert all((a.submit, a.work) == (t.submit, t.work) for a, t in pairs)
        assert all(
            a.sizes.min == t.sizes.min == t.sizes.max and a.sizes.max == 64 for a, t in pairs
        )
        shared, rigid = (run_task({**each, "jobs": 200}, seed) for each in spec)
        assert shared["schedule_span_s"] < rigid["schedule_span_s"]
        assert shared["utilization"] > rigid["utilization"]
        assert shared["mean_response_s"] < rigid["mean_response_s"]


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    monkeypatch.setattr(measuring, "run_all", pretend)
    experiment = read_experiment(small(tmp_path))
    seen: list[tuple[int, int]] = []
    measured = measure(
        [experiment], ResultsStore(tmp_path), progress=lambda *each: seen.append(each)
    )
    assert seen == [(done, 9) for done in range(10)]
    return conclude(experiment, measured[0]).lines


def test_a_result_has_a_line_for_each_variant_of_each_row(lines: list[Line]) -> None:
    adaptive, traditional = lines
    assert adaptive.setup == {"mean_interarrival_s": 129, "class": "adaptive"}
    assert traditional.setup == {"mean_interarrival_s": 129, "class": "traditional"}
    assert adaptive.ours["utilization"].mean == pytest.approx(0.51)
    assert adaptive.theory == {"mean_response_s": 129.0}
    assert adaptive.verdicts == {"mean_response_s": "as theory", "utilization": "as printed"}
    found = adaptive.claims["utilization above class fast"]
    assert (found.holds, found.pairs, found.of) == (True, 3, 3)
    assert found.by.mean == pytest.approx(0.41)
    assert (adaptive.verdict, traditional.verdict) == ("as theory", "reported")
