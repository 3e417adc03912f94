"""Experiments are read from definitions in YAML; errors name the line and the key."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from corekit.experiments import SMALL, cell_of, small
from pliant.simulator.experiments.definition.definitions import (
    ExperimentError,
)
from pliant.simulator.experiments.definition.reading import (
    find_experiment,
    known_experiments,
    read_experiment,
)
from pliant.simulator.experiments.running.tasks import run_task, workload_of
from testkit import ROOT


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


def test_the_definition_on_the_page_is_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    text = page.split("```yaml\n")[1].split("```")[0]
    experiment = read_experiment(small(tmp_path, text))
    assert experiment.axes() == {"malleable_pct": [0, 50, 100], "nodes": [256, 512]}
    assert sum(len(cell.printed) for cell in experiment.cells) == 3
    assert [cell.seeds for cell in experiment.cells] == [5, 3] * 3
