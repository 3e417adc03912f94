"""The command that runs experiments and prints or writes their results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from corekit.experiments import SMALL, pretend, small
from pliant.simulator.experiments import experiment_command
from pliant.simulator.experiments.definition.definitions import (
    ExperimentError,
)
from pliant.simulator.experiments.definition.reading import (
    read_experiment,
)
from pliant.simulator.experiments.results import conclude
from pliant.simulator.experiments.running import measuring
from pliant.simulator.experiments.running.measuring import Scale, measure
from pliant.simulator.experiments.running.pool import Done, Task
from pliant.simulator.experiments.running.results_store import ResultsStore


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
    def close(tasks: Iterable[Task], processes: int, done: Done) -> None:
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
