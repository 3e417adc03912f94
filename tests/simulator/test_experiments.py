"""Experiments: definitions are data with precise errors; tables are judged as they should be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from pliant.simulator.confidence import Interval
from pliant.simulator.experiments import command, pool, results
from pliant.simulator.experiments.definitions import (
    Experiment,
    ExperimentError,
    Metric,
    Tolerance,
    find_experiment,
    known_experiments,
    read_experiment,
)
from pliant.simulator.experiments.pool import Task
from pliant.simulator.experiments.tasks import workload_of
from pliant.simulator.experiments.theory import theory_value
from pliant.strategies.registry import known_strategies

SMALL = """
title: Small
source: nobody, section 0
run: {workload: kumar, parameters: {jobs: 40, minpe: 16-64}, strategy: equipartition}
seeds: 2
compare: class
variants: {adaptive: {}, traditional: {parameters: {job_class: traditional}}}
references: {fast: {parameters: {base_time: 1}}}
vary: {mean_interarrival_s: gap}
metrics: {mean_response_s: {}, utilization: {within: 5 %}}
claims: [{metric: utilization, of: adaptive, above: fast}]
rows:
  - setup: {mean_interarrival_s: 129}
    seeds: 3
    run: {warm_up: 3}
    printed: {adaptive: {utilization: 0.5, mean_response_s: 1}}
    theory: {adaptive: {mean_response_s: processor-sharing}}
"""


def small(tmp_path: Path, text: str = SMALL) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["kumar-4.2", "kumar-4.3", "kumar-4.5", "kumar-4.6"])
def test_the_published_experiments_are_there(name: str) -> None:
    assert name in known_experiments()


@pytest.mark.parametrize("name", sorted(known_experiments()))
def test_every_definition_can_be_run(name: str) -> None:
    experiment = find_experiment(name)
    known = known_strategies()
    for row in experiment.rows:
        for variant in (*experiment.variants, *experiment.references):
            spec = experiment.spec(row, variant)
            assert spec["strategy"] in known
            spec["jobs"] = 3
            workload = workload_of(spec, seed=1)
            assert len(workload.jobs) == 3


def test_later_layers_of_a_run_go_before_earlier_ones(tmp_path: Path) -> None:
    experiment = read_experiment(small(tmp_path))
    assert experiment.spec(experiment.rows[0], "traditional") == {
        "workload": "kumar",
        "parameters": {"jobs": 40, "minpe": "16-64", "gap": 129, "job_class": "traditional"},
        "strategy": "equipartition",
        "warm_up": 3,
    }
    assert experiment.run["parameters"] == {"jobs": 40, "minpe": "16-64"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: Small", "titel: Small", "titel: not known here; known are: title, source"),
        ("title: Small", "", "title: expected text, there is none"),
        ("seeds: 2", "seeds: two", "seeds: expected a whole number, not 'two'"),
        ("seeds: 2", "seeds: 1", "seeds: expected at least 2, not 1"),
        ("seeds: 3", "seeds: 0", "rows[0].seeds: expected at least 2, not 0"),
        ("run: {workload", "run: {work", "run.work: not known here; known are: workload, "),
        ("{adaptive: {}", "{adaptive: 3", "variants.adaptive: expected a mapping, not 3"),
        ("within: 5 %", "within: near", "metrics.utilization.within: expected like 0.015 or 3 %"),
        ("within: 5 %", "near: 5", "metrics.utilization.near: not known here"),
        ("above: fast", "", "claims[0]: expected either above or below"),
        ("above: fast", "above: slow", "claims[0]: 'slow' is none of adaptive, fast, traditional"),
        ("{utilization: 0.5,", "{profit: 0.5,", "rows[0].printed.adaptive: 'profit' is none of"),
        ("printed: {adaptive", "printed: {other", "rows[0].printed: 'other' is none of adaptive"),
        ("tion: 0.5", "tion: half", "rows[0].printed.adaptive.utilization: expected a number, not"),
        ("processor-sharing", "magic", "expected a number or one of offered-load, "),
        ("setup: {mean", "set: {mean", "rows[0].set: not known here; known are: setup, seeds"),
        ("rows:", "rows: [", "not YAML: "),
    ],
)
def test_errors_say_where(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SMALL
    path = small(tmp_path, SMALL.replace(old, new))
    with pytest.raises(ExperimentError) as caught:
        read_experiment(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


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
def test_theory(formula: str | float, parameters: dict[str, Any], expected: float | None) -> None:
    found = theory_value(formula, {"workload": "kumar", "parameters": parameters})
    assert found == (None if expected is None else pytest.approx(expected))


def test_theory_of_rigid_jobs_is_what_was_printed() -> None:
    """Kumar's Table 4.3, traditional jobs; all printed values are about 4 % lower."""
    experiment = find_experiment("kumar-4.3")
    for row in experiment.rows[:5]:
        spec = experiment.spec(row, "traditional")
        found = theory_value("rigid-load", spec)
        assert found == pytest.approx(row.printed["traditional"]["utilization"], rel=0.05)


@pytest.mark.parametrize(
    ("within", "mean", "printed", "theory", "verdict"),
    [
        ("0.1", 1.05, 1.0, None, results.PRINTED),
        ("0.1", 1.15, 1.0, None, results.DIFFERS),
        ("10 %", 215, 200, None, results.PRINTED),
        ("0.1", 1.5, 1.0, 1.45, results.THEORY),
        ("0.1", 1.5, 1.0, 1.8, results.DIFFERS),
        ("", 5.0, 1.0, 4.9, results.THEORY),
        ("", 1.0, None, 1.1, results.UNDECIDED),
        ("0.1", 1.5, 1.0, 1.65, results.UNDECIDED),
        ("", 5.0, 1.0, 4.0, results.DIFFERS),
        ("", 5.0, 1.0, None, results.REPORTED),
        ("", 5.0, None, None, results.REPORTED),
        ("0.1", 5.0, None, None, results.REPORTED),
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
    assert results.judge(metric, ours, printed, theories) == verdict


@pytest.mark.parametrize(
    ("verdicts", "claims", "expected"),
    [
        ({"a": "as printed", "b": "reported"}, {}, "as printed"),
        ({"a": "as printed", "b": "as theory"}, {"x": True}, "as theory"),
        ({"a": "reported"}, {}, "reported"),
        ({"a": "as theory", "b": "too few runs"}, {"x": True}, "too few runs"),
        ({"a": "differs", "b": "as printed"}, {"p above q": False}, "differs: a, not p above q"),
    ],
)
def test_one_verdict_for_a_line(
    verdicts: dict[str, str], claims: dict[str, bool], expected: str
) -> None:
    assert results.summary(verdicts, claims) == expected


def pretend(tasks: Sequence[Task], _: int, progress: pool.Progress) -> list[dict[str, Any]]:
    """Instead of simulations: numbers that depend on the class and on the seed."""
    found = []
    for done, task in enumerate(tasks, 1):
        fast = task.spec["parameters"].get("base_time") == 1
        traditional = task.spec["parameters"].get("job_class") == "traditional"
        used = 0.1 if fast else 0.4 if traditional else 0.49 + task.seed / 100
        found.append({"mean_response_s": 125.0 + 2 * task.seed, "utilization": used})
        progress(done)
    return found


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Experiment, list[results.Line]]:
    monkeypatch.setattr(results, "run_all", pretend)
    experiment = read_experiment(small(tmp_path))
    assert results.count_runs(experiment, None) == 9
    return experiment, results.run_experiment(experiment, processes=1, progress=lambda _: None)


def test_a_result_has_a_line_for_each_variant_of_each_row(
    lines: tuple[Experiment, list[results.Line]],
) -> None:
    adaptive, traditional = lines[1]
    assert adaptive.setup == {"mean_interarrival_s": 129, "class": "adaptive"}
    assert traditional.setup == {"mean_interarrival_s": 129, "class": "traditional"}
    assert adaptive.ours["utilization"].mean == pytest.approx(0.51)
    assert adaptive.theory == {"mean_response_s": 129.0}
    assert adaptive.verdicts == {"mean_response_s": "as theory", "utilization": "as printed"}
    assert adaptive.claims == {"utilization above fast": True}
    assert (adaptive.verdict, traditional.verdict) == ("as theory", "reported")


def test_the_command_prints_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "run_all", pretend)
    assert command.main(["run", str(small(tmp_path)), "--json", "--seeds", "3"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["setup"]["class"] for row in rows] == ["adaptive", "traditional"]
    assert {"setup", "printed", "ours", "theory", "verdict"} <= rows[0].keys()
    assert set(rows[0]["ours"]["utilization"]) == {"mean", "low", "high"}


def test_the_command_prints_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "run_all", pretend)
    assert command.main(["run", str(small(tmp_path))]) == 0
    out, err = capsys.readouterr()
    assert "All 2 lines agree, or are only reported." in out
    assert "small: 9 of 9 runs" in err
    assert command.main(["report", str(small(tmp_path)), "--out", str(tmp_path / "r.md")]) == 0
    assert "| 129 | adaptive | utilization | 0.5000 |" in (tmp_path / "r.md").read_text()


def test_the_command_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["list"]) == 0
    assert "Mean response time and utilization with linear speedup" in capsys.readouterr().out
    assert command.main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "kumar-4.2"


@pytest.mark.parametrize(
    "words",
    [["run", "kumar-4.2", "--seeds", "1"], ["run", "kumar-4.2", "--jobs", "x"], [], ["fly"]],
)
def test_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(words)
    assert caught.value.code == 2


def test_a_failure_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["run", "x"]) == 1
    assert capsys.readouterr().err.startswith("pliant experiment: there is no experiment 'x'; ")


def test_a_run_that_fails_is_said_in_one_line(tmp_path: Path) -> None:
    text = SMALL.replace("jobs: 40,", "jobs: 40, colour: red,")
    experiment = read_experiment(small(tmp_path, text))
    with pytest.raises(ExperimentError, match="kumar: there is no parameter 'colour'; there are"):
        results.run_experiment(experiment, processes=2, progress=lambda _: None)


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
    with pytest.raises(ExperimentError, match=r"workload 'b\.swf': no model"):
        workload_of({"workload": "b.swf"}, 1)
    with pytest.raises(ExperimentError, match=r"transform\.colour: not known; known are"):
        workload_of({**spec, "transform": {"colour": 1}}, 1)


def test_definitions_are_plain_yaml() -> None:
    for path in known_experiments().values():
        assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


def test_a_small_experiment_runs_in_processes_of_its_own(tmp_path: Path) -> None:
    experiment = read_experiment(small(tmp_path))
    seen: list[int] = []
    adaptive, traditional = results.run_experiment(
        experiment, processes=2, progress=seen.append, seeds=2
    )
    assert seen[-1] == results.count_runs(experiment, 2) == 6
    again, _ = results.run_experiment(experiment, processes=1, progress=seen.append, seeds=2)
    assert again == adaptive
    assert adaptive.ours["utilization"].mean > 0.3
    assert adaptive.claims == {"utilization above fast": True}
    assert traditional.ours["mean_response_s"].mean > adaptive.ours["mean_response_s"].mean
