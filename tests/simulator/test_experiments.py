"""Experiments: definitions are data with precise errors; tables are judged as they should be."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from pliant.simulator.confidence import Interval
from pliant.simulator.experiments import experiment_command, verdicts
from pliant.simulator.experiments.definition.definitions import (
    Cell,
    Experiment,
    ExperimentError,
    Metric,
    Tolerance,
)
from pliant.simulator.experiments.definition.reading import (
    find_experiment,
    known_experiments,
    read_experiment,
)
from pliant.simulator.experiments.queueing_theory import theory_value
from pliant.simulator.experiments.results import Line, conclude
from pliant.simulator.experiments.running import measuring
from pliant.simulator.experiments.running.measuring import Scale, measure
from pliant.simulator.experiments.running.pool import Done, Task
from pliant.simulator.experiments.running.results_store import ResultsStore
from pliant.simulator.experiments.running.tasks import run_task, workload_of
from pliant.simulator.inputs.models import parameters
from pliant.simulator.time_shared.task import read_shared_task
from pliant.strategies.registry import known_strategies, load_strategy
from testkit import ROOT

SMALL = """
title: Small
source: nobody, section 0
run: {workload: kumar, parameters: {jobs: 40, minpe: 16-64}, strategy: equipartition}
seeds: 2
compare: class
variants: {adaptive: {}, traditional: {parameters: {job_class: traditional}}}
references: {fast: {parameters: {base_time: 1}}}
sweep: {mean_interarrival_s: [129]}
vary: {mean_interarrival_s: parameters.gap}
metrics: {mean_response_s: {}, utilization: {within: 5 %}}
claims: [{metric: utilization, of: adaptive, above: fast}]
theory: {adaptive: {mean_response_s: processor-sharing}}
rows:
  - {setup: {mean_interarrival_s: 129}, seeds: 3, run: {warm_up: 3}}
printed:
  - source: nowhere
    where: {class: adaptive}
    down: mean_interarrival_s
    across: metric
    columns: [utilization, mean_response_s]
    rows:
      129: [0.5, 1]
"""


def small(tmp_path: Path, text: str = SMALL) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["kumar-4.2", "kumar-4.3", "kumar-4.5", "kumar-4.6"])
def test_the_published_experiments_are_there(name: str) -> None:
    assert name in known_experiments()


def cell_of(experiment: Experiment, **setup: object) -> Cell:
    cell = next((cell for cell in experiment.cells if cell.fits(setup)), None)
    assert cell is not None
    return cell


@pytest.mark.parametrize("name", sorted(known_experiments()))
def test_every_experiment_runs_at_a_small_size(name: str) -> None:
    """The first and the last cell of each variant run, with a model instead of a log."""
    experiment = find_experiment(name)
    by_variant: dict[object, list[Cell]] = {}
    for cell in experiment.cells:
        by_variant.setdefault(cell.setup.get(experiment.compare), []).append(cell)
    for cells in by_variant.values():
        for cell in {id(cell): cell for cell in (cells[0], cells[-1])}.values():
            measured = run_task(small_run(cell), seed=1)
            for metric in experiment.metrics:
                is_of_dynp = metric.source.startswith("policy_")
                of_others = is_of_dynp and not str(cell.spec.get("strategy")).startswith("dynp")
                assert of_others or metric.source in measured


def small_run(cell: Cell) -> dict[str, Any]:
    """Return the run of a cell with few jobs, for machines without workload logs."""
    if "job_list" in cell.spec:
        return dict(cell.spec)
    spec = {**cell.spec, "jobs": 12}
    if str(spec["workload"]).endswith(".gz"):
        spec |= {"workload": "lublin", "parameters": {}}
    return spec


@pytest.mark.parametrize("name", sorted(known_experiments()))
def test_every_cell_has_a_known_strategy_and_a_workload(name: str) -> None:
    known = known_strategies()
    checked: set[str] = set()
    for cell in find_experiment(name).cells:
        spec = small_run(cell)
        if "time_shared" in spec:
            workload, settings = read_shared_task(spec)
            assert len(workload.make(1, settings.nodes)) == 12
            load_strategy(spec["strategy"], settings.options)
            continue
        spec["settings"] = {}
        # Runs on several clusters name a policy and a precedence.
        assert "multicluster" in spec or spec["strategy"] in known
        if repr(spec) not in checked:
            checked.add(repr(spec))
            assert workload_of(spec, seed=1).jobs


def test_later_layers_of_a_run_go_before_earlier_ones(tmp_path: Path) -> None:
    experiment = read_experiment(small(tmp_path))
    cell = cell_of(experiment, **{"class": "traditional"})
    assert cell.spec == {
        "workload": "kumar",
        "parameters": {"jobs": 40, "minpe": "16-64", "gap": 129, "job_class": "traditional"},
        "strategy": "equipartition",
        "warm_up": 3,
    }
    assert cell.seeds == 3


def test_a_sweep_is_the_product_of_its_axes(tmp_path: Path) -> None:
    text = SMALL.replace("[129]}", "[129, 100], size: [64, 128]}")
    text = text.replace("parameters.gap}", "parameters.gap, size: parameters.processors}")
    text = text.replace("where: {class: adaptive}", "where: {class: adaptive, size: 64}")
    experiment = read_experiment(small(tmp_path, text))
    assert len(experiment.cells) == 2 * 2 * 3
    assert experiment.axes() == {
        "mean_interarrival_s": [129, 100],
        "size": [64, 128],
        "class": ["adaptive", "traditional"],
    }
    # The entry of `rows` changes both sizes; the printed table has one of them.
    assert [cell.seeds for cell in experiment.matching({"mean_interarrival_s": 129})] == [3] * 4
    printed = [cell for cell in experiment.cells if cell.printed]
    assert [cell.setup["size"] for cell in printed] == [64]
    assert printed[0].spec["parameters"]["processors"] == 64


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("title: Small", "titel: Small", 2, "titel: not known here; known are: title, source"),
        ("title: Small", "", 1, "title: is missing"),
        ("seeds: 2", "seeds: two", 5, "seeds: expected a whole number, not 'two'"),
        ("seeds: 2", "seeds: 1", 5, "seeds: expected at least 2, not 1"),
        ("seeds: 3", "seeds: 0", 15, "rows[0].seeds: expected at least 2, not 0"),
        ("run: {workload", "run: {work", 4, "run.work: not known here; known are: workload, "),
        ("{adaptive: {}", "{adaptive: 3", 7, "variants.adaptive: expected a mapping, not 3"),
        ("within: 5 %", "within: near", 11, "utilization.within: expected like 0.015 or 3 %"),
        ("within: 5 %", "near: 5", 11, "metrics.utilization.near: not known here"),
        ("mean_response_s: {}", "speed: {}", 11, "metrics.speed: 'speed' is not a metric of"),
        ("above: fast", "", 12, "claims[0]: expected either above or below"),
        ("above: fast", "above: fast, by: 8 %, at_most: 5 %", 12, "claims[0].at_most: expected at"),
        ("above: fast", "above: fast, by: 8 %, at_most: 0.1", 12, "claims[0].at_most: expected at"),
        ("above: fast", "above: slow", 12, "claims[0].above.class: 'slow' is none of adaptive,"),
        ("[129]", "[]", 9, "sweep.mean_interarrival_s: expected a list of values, not []"),
        ("[129]", "[129, 129]", 9, "sweep.mean_interarrival_s[1]: 129 is in the list twice"),
        ("parameters.gap", "gap", 10, "vary.mean_interarrival_s: 'gap' is not a part of a run"),
        ("vary: {mean_inter", "vary: {x", 9, "sweep.mean_interarrival_s: is not in vary"),
        ("setup: {mean_interarrival_s: 129", "setup: {size: 1", 15, "rows[0].setup: no row of"),
        ("[utilization, mean", "[profit, mean", 21, "printed[0].columns[0]: 'profit' is none of"),
        ("{class: adaptive}", "{class: other}", 18, "printed[0].where: 'other' is none of adap"),
        ("129: [0.5, 1]", "129: [0.5]", 23, "printed[0].rows.129: expected 2 values as in col"),
        ("129: [0.5, 1]", "129: [half, 1]", 23, "printed[0].rows.129: expected a number, not"),
        ("129: [0.5, 1]", "128: [0.5, 1]", 23, "printed[0].rows.128: 128 is none of 129"),
        ("where: {class: adaptive}", "", 17, "printed[0]: where: does not say which class"),
        ("processor-sharing", "magic", 13, "expected a number or one of offered-load, "),
        ("setup: {mean", "set: {mean", 15, "rows[0].set: not known here; known are: setup, see"),
    ],
)
def test_errors_name_the_line_and_the_key(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    assert old in SMALL
    path = small(tmp_path, SMALL.replace(old, new))
    with pytest.raises(ExperimentError) as caught:
        read_experiment(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: line {line}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rows:", "rows: [", "not YAML: "),
        ("seeds: 2", "seeds: 2\nseeds: 3", "line 6: the key seeds stands in line 5 already"),
    ],
)
def test_a_file_that_is_not_yaml_is_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = small(tmp_path, SMALL.replace(old, new, 1))
    with pytest.raises(ExperimentError) as caught:
        read_experiment(path)
    assert str(caught.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]\n",
        "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 41)),
    ],
)
def test_aliases_in_a_definition_are_looked_at_once(tmp_path: Path, text: str) -> None:
    with pytest.raises(ExperimentError, match="not known here"):
        read_experiment(small(tmp_path, text))


def test_an_unknown_experiment_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"no experiment 'x'; there are: .*kumar-4\.2"):
        find_experiment("x")
    with pytest.raises(ExperimentError, match="No such file"):
        find_experiment(str(tmp_path / "none.yaml"))


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
    assert verdicts.judge(metric, ours, printed, theories) == verdict


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
    ],
)
def test_one_verdict_for_a_line(
    by_metric: dict[str, str], claims: dict[str, bool], expected: str
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


def pretend(tasks: Sequence[Task], _: int, done: Done) -> None:
    """Instead of simulations: numbers that depend on the class and on the seed."""
    for task in tasks:
        fast = task.spec["parameters"].get("base_time") == 1
        traditional = task.spec["parameters"].get("job_class") == "traditional"
        used = 0.1 if fast else 0.4 if traditional else 0.49 + task.seed / 100
        done(task, {"mean_response_s": 125.0 + 2 * task.seed, "utilization": used})


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


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run the command with pretended simulations, and with results in a folder of the test."""
    monkeypatch.setattr(measuring, "run_all", pretend)

    def call(action: str, *words: str) -> int:
        folder = str(tmp_path / "results")
        return experiment_command.main([action, str(small(tmp_path)), "--results", folder, *words])

    return call


def test_the_command_prints_json(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("run", "--json", "--seeds", "3") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["setup"]["class"] for row in rows] == ["adaptive", "traditional"]
    assert {"setup", "printed", "ours", "theory", "verdict"} <= rows[0].keys()
    assert set(rows[0]["ours"]["utilization"]) == {"mean", "low", "high"}


def test_the_command_prints_tables(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("run") == 0
    out, err = capsys.readouterr()
    assert "All 2 lines agree, or are only reported." in out
    assert "- mean_interarrival_s 129, class adaptive: utilization above class fast, by 0.4" in out
    assert "in 3 of 3 pairs\n" in out
    assert "9 of 9 runs" in err


def test_a_report_has_a_page_in_two_formats(run: Callable[..., int], tmp_path: Path) -> None:
    assert run("report", "--out", str(tmp_path / "report")) == 0
    page = (tmp_path / "report" / "experiments.md").read_text()
    assert "| 129 | adaptive | utilization | 0.5000 |" in page
    assert "$ pliant experiment run small" in page
    html = (tmp_path / "report" / "experiments.html").read_text()
    assert "<td>0.5000</td>" in html


def test_a_claim_that_chance_may_have_decided_is_counted_apart(
    run: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def close(tasks: Sequence[Task], processes: int, done: Done) -> None:
        def nearer(task: Task, metrics: dict[str, float]) -> None:
            used = metrics["utilization"]
            done(task, {**metrics, "utilization": 0.505 if used == 0.1 else used})

        pretend(tasks, processes, nearer)

    monkeypatch.setattr(measuring, "run_all", close)
    assert run("run") == 0
    out = capsys.readouterr().out
    assert "class adaptive: utilization above class fast, by 0.005 (" in out
    assert "in 2 of 3 pairs, of sides not to be told apart (0 is within the interval)\n" in out
    assert "Of 1 claims 1 are of sides not to be told apart" in out


def test_a_report_that_cannot_be_written_is_not_begun(
    run: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(measuring, "run_all", lambda *_: pytest.fail("begun"))
    (tmp_path / "file").write_text("")
    assert run("report", "--out", str(tmp_path / "file" / "x")) == 1
    assert "cannot be written: Not a directory" in capsys.readouterr().err


def test_the_command_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert experiment_command.main(["list"]) == 0
    assert "Mean response time and utilization with linear speedup" in capsys.readouterr().out
    assert experiment_command.main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"]


@pytest.mark.parametrize(
    "words",
    [["run", "kumar-4.2", "--seeds", "1"], ["run", "kumar-4.2", "--jobs", "x"], [], ["fly"]],
)
def test_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        experiment_command.main(words)
    assert caught.value.code == 2


def test_a_failure_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert experiment_command.main(["run", "x"]) == 1
    assert capsys.readouterr().err.startswith("pliant experiment: there is no experiment 'x'; ")


def test_a_run_that_fails_is_said_in_one_line(tmp_path: Path) -> None:
    text = SMALL.replace("jobs: 40,", "jobs: 40, colour: red,")
    experiment = read_experiment(small(tmp_path, text))
    with pytest.raises(ExperimentError, match="kumar: there is no parameter 'colour'; there are"):
        measure([experiment], ResultsStore(tmp_path), processes=2)


def test_transformations_and_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.swf").write_text("1 10 -1 5 4\n2 20 -1 5 4\n")
    monkeypatch.setenv("PLIANT_WORKLOADS", str(tmp_path))
    spec = {
        "workload": "a.swf",
        "processors": 8,
        "transform": {"malleable": 50, "sizes": "1-8:pow2", "shrinking_factor": 0.5},
    }
    first, second = workload_of(spec, 1).jobs
    assert (first.submit, second.submit) == (5, 10)
    assert (first.malleable, second.malleable) == (True, False)
    relative = {"malleable": 100, "sizes": "p/2-2p", "speedup": "amdahl:0.5"}
    job = workload_of({**spec, "transform": relative}, 1).jobs[0]
    assert (str(job.sizes), str(job.speedup), job.runtime) == ("2-8", "amdahl:0.5", 5)
    with pytest.raises(ExperimentError, match=r"workload 'b\.swf': no model"):
        workload_of({"workload": "b.swf"}, 1)
    with pytest.raises(ExperimentError, match=r"transform\.colour: not known; known are"):
        workload_of({**spec, "transform": {"colour": 1}}, 1)


def test_clusters_alone_are_the_machine_of_a_run() -> None:
    spec = {"workload": "downey", "jobs": 9, "settings": {"clusters": "a:12,b:8"}}
    assert workload_of(spec, 1).processors == 20
    assert run_task(spec, 1) == run_task({**spec, "processors": 20}, 1)


def test_definitions_are_plain_yaml() -> None:
    for path in known_experiments().values():
        assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


def test_a_small_experiment_runs_in_processes_of_its_own(tmp_path: Path) -> None:
    experiment = read_experiment(small(tmp_path))
    scale = Scale(seeds=2)
    measured = measure([experiment], ResultsStore(tmp_path / "a"), scale=scale, processes=2)[0]
    again = measure([experiment], ResultsStore(tmp_path / "b"), scale=scale, processes=1)[0]
    assert again == measured
    adaptive, traditional = conclude(experiment, measured, scale).lines
    assert adaptive.ours["utilization"].mean > 0.3
    assert adaptive.claims["utilization above class fast"].pairs == 2
    assert traditional.ours["mean_response_s"].mean > adaptive.ours["mean_response_s"].mean


def test_the_definition_on_the_page_is_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    text = page.split("```yaml\n")[1].split("```")[0]
    experiment = read_experiment(small(tmp_path, text))
    assert experiment.axes() == {"malleable_pct": [0, 50, 100], "nodes": [256, 512]}
    assert sum(len(cell.printed) for cell in experiment.cells) == 3
    assert [cell.seeds for cell in experiment.cells] == [5, 3] * 3
