"""Results of experiments on disk: interrupted runs continue, and other results are not mixed in."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest

from pliant.simulator.experiments.definition.definitions import Experiment, ExperimentError
from pliant.simulator.experiments.definition.reading import read_experiment
from pliant.simulator.experiments.results import conclude
from pliant.simulator.experiments.running import measuring
from pliant.simulator.experiments.running.measuring import (
    ProgressLine,
    Scale,
    duration,
    measure,
    obsolete_results,
)
from pliant.simulator.experiments.running.pool import Done, Task
from pliant.simulator.experiments.running.results_store import (
    ResultsStore,
    without_comments,
)
from testkit import wait_until

TWO_AXES = """
title: Two axes
source: nobody
run: {workload: ghafoor, parameters: {jobs: 20, processors: 128}, strategy: max-fit}
seeds: 2
sweep: {malleable_pct: [0, 50, 100], gap_s: [10, 20]}
vary: {malleable_pct: parameters.malleable, gap_s: parameters.gap}
metrics: {utilization: {}, mean_turnaround_s: {}}
claims:
  - {metric: utilization, of: {malleable_pct: 100}, above: {malleable_pct: 0}, by: 0.2}
  - {metric: utilization, highest: {malleable_pct: [50, 100]}, where: {gap_s: 10}}
differences:
  - {source: nowhere, metric: utilization, of: {gap_s: 20}, below: {gap_s: 10}, in: points,
     across: malleable_pct, printed: {0: 5.0, 100: 1.0}}
interpolations:
  - {source: nowhere, metric: mean_turnaround_s, at: {utilization: 0.55}, along: malleable_pct,
     across: gap_s, printed: {10: 100, 20: 200}}
printed:
  - {source: nowhere, metric: utilization, where: {gap_s: 10}, down: malleable_pct,
     rows: {0: 0.4, 50: 0.6, 100: 0.7}, doubtful: [{at: [50], because: a misprint}]}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    path = tmp_path / "axes.yaml"
    path.write_text(TWO_AXES, encoding="utf-8")
    return read_experiment(path)


def pretend(tasks: Iterable[Task], _: int, done: Done) -> None:
    for task in tasks:
        given = task.spec["parameters"]
        used = 0.4 + given["malleable"] / 250 + task.seed / 1000 - given["gap"] / 10_000
        done(task, {"utilization": used, "mean_turnaround_s": 1000 * used})


def test_finished_runs_are_not_repeated(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[object, int]] = []

    def until_the_fifth(tasks: Iterable[Task], processes: int, done: Done) -> None:
        pretend(islice(tasks, 5), processes, done)
        raise KeyboardInterrupt

    def count(tasks: Iterable[Task], processes: int, done: Done) -> None:
        taken = list(tasks)
        ran.extend((task.spec, task.seed) for task in taken)
        pretend(taken, processes, done)

    monkeypatch.setattr(measuring, "run_all", until_the_fifth)
    store = ResultsStore(tmp_path / "results")
    with pytest.raises(KeyboardInterrupt):
        measure([experiment], store)
    monkeypatch.setattr(measuring, "run_all", count)
    seen: list[tuple[int, int]] = []
    first = measure([experiment], store, progress=lambda *each: seen.append(each))
    assert len(ran) == 7
    assert seen[0] == (5, 12)
    assert seen[-1] == (12, 12)
    assert measure([experiment], store) == first
    assert len(ran) == 7
    # Another size does not use these results, and is not named as obsolete.
    measure([experiment], store, scale=Scale(seeds=3))
    assert len(ran) == 7 + 6
    measure([experiment], store, scale=Scale(jobs=5))
    assert len(ran) == 7 + 6 + 12
    assert obsolete_results([experiment], store, Scale()) == []


def test_an_incomplete_line_is_run_again(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "run_all", pretend)
    store = ResultsStore(tmp_path / "results")
    first = measure([experiment], store)
    path = next((tmp_path / "results").rglob("*.jsonl"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert measure([experiment], store) == first
    assert len(path.read_bytes().splitlines()) == len(whole.splitlines()) + 1
    assert measure([experiment], store) == first


def test_results_of_a_changed_definition_are_named_and_not_used(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "run_all", pretend)
    store = ResultsStore(tmp_path / "results")
    measure([experiment], store)
    path = tmp_path / "axes.yaml"
    path.write_text(TWO_AXES.replace("processors: 128", "processors: 256"), encoding="utf-8")
    changed = read_experiment(path)
    found = obsolete_results([changed], store, Scale())
    assert len(found) == 6
    assert all("parameters.processors was 128, is 256" in text for text in found)
    ran: list[Task] = []

    def count(tasks: Iterable[Task], processes: int, done: Done) -> None:
        ran.extend(tasks)
        pretend(ran, processes, done)

    monkeypatch.setattr(measuring, "run_all", count)
    measure([changed], store)
    assert len(ran) == 12


def test_results_of_other_code_are_named_and_not_used(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "run_all", pretend)
    store = ResultsStore(tmp_path / "results")
    measure([experiment], store)
    where = "pliant.simulator.experiments.running.results_store.code_version"
    monkeypatch.setattr(where, lambda: "another")
    found = obsolete_results([experiment], store, Scale())
    assert len(found) == 6
    assert all("another version of the simulator" in text for text in found)


def test_a_change_of_words_is_not_a_change_of_the_code() -> None:
    old = b'"""Old."""\n\ndef f(x):\n    """Old."""\n    return x + 1  # old\n'
    new = b'def f(x):\n    """New.\n\n    Longer.\n    """\n\n    return x + 1\n'
    assert without_comments(old) == without_comments(new)
    assert without_comments(new) != without_comments(new.replace(b"1", b"2"))


def test_claims_across_rows(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "run_all", pretend)
    measured = measure([experiment], ResultsStore(tmp_path))[0]
    outcome = conclude(experiment, measured)
    # One claim for each gap, about the lines with 100 %.
    assert [found.holds for _, found in outcome.claims] == [True, True]
    assert outcome.claims[0][1].by.mean == pytest.approx(0.4)
    assert [(peak.highest_at, peak.holds) for peak in outcome.peaks] == [(100, True)]
    low, high = outcome.differences
    assert (low.at, low.printed, low.of_printed) == (0, 5.0, None)
    assert low.ours.mean == pytest.approx(0.1)
    assert high.ours.mean == pytest.approx(0.1)
    first, second = outcome.interpolations
    assert first.ours is not None
    assert first.ours.mean == pytest.approx(550)
    assert second.printed == 200
    doubtful = [line for line in outcome.lines if line.doubtful]
    assert [line.setup["malleable_pct"] for line in doubtful] == [50]
    assert doubtful[0].verdicts["utilization"] == "printed value doubtful"


def test_a_claim_with_a_margin_fails_if_the_difference_is_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "run_all", pretend)
    path = tmp_path / "axes.yaml"
    path.write_text(TWO_AXES.replace("by: 0.2", "by: 0.5"), encoding="utf-8")
    strict = read_experiment(path)
    outcome = conclude(strict, measure([strict], ResultsStore(tmp_path))[0])
    assert [found.holds for _, found in outcome.claims] == [False, False]
    assert outcome.verdict == "not reproduced"


def test_the_time_left_is_an_extrapolation(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 10.0, 20.0])
    line = ProgressLine(clock=lambda: next(times))
    line(5, 20)
    line(6, 20)
    line(8, 20)
    err = capsys.readouterr().err
    assert "5 of 20 runs are done already" in err
    assert "6 of 20 runs, 2 min 20 s left" in err
    assert "8 of 20 runs, 1 min 20 s left" in err


@pytest.mark.parametrize(
    ("seconds", "text"), [(7.4, "7 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_durations_are_texts(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("how", "action"),
    [
        (signal.SIGKILL, ["report", "axes.yaml", "--within", "1h", "--out", "page"]),
        (signal.SIGINT, ["run", "axes.yaml"]),
    ],
)
def test_an_ended_command_continues(tmp_path: Path, how: signal.Signals, action: list[str]) -> None:
    """The command ends by a signal after a run, and repeats no finished run when it is repeated."""
    (tmp_path / "axes.yaml").write_text(TWO_AXES, encoding="utf-8")
    results = tmp_path / "results"
    # Runs of so many jobs take long enough to end the command between two of them.
    words = [*action, "--processes", "1", "--jobs", "400", "--results", str(results)]
    command = [
        sys.executable,
        "-P",
        "-m",
        "pliant.simulator.experiments.experiment_command",
        *words,
    ]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_until(lambda: _stored(results) or process.poll() is not None)
            process.send_signal(how)
            _, err = process.communicate(timeout=40)
        finally:
            process.kill()
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "interrupted; finished runs are kept, and the same command continues" in err
        assert "Traceback" not in err
    before = _stored(results)
    assert 0 < before < 12
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"{before} of 12 runs are done already" in again.stderr
    text = again.stdout
    if action[0] == "report":
        text = (tmp_path / "page" / "experiments.md").read_text(encoding="utf-8")
        assert "| 12 of 12 |" in text
    assert "utilization" in text
    lines = [path.read_text().splitlines() for path in results.rglob("*.jsonl")]
    assert [len(each) for each in lines] == [3] * 6  # a header, and no seed twice


def _stored(results: Path) -> int:
    """Return how many runs are stored."""
    return sum(
        line.startswith('{"seed"') and line.endswith("}")
        for path in results.rglob("*.jsonl")
        for line in path.read_text().splitlines()
    )


def test_a_run_that_fails_names_its_experiment_and_row(tmp_path: Path) -> None:
    path = tmp_path / "axes.yaml"
    path.write_text(TWO_AXES.replace("processors: 128", "processors: 64"), encoding="utf-8")
    with pytest.raises(ExperimentError, match=r"axes, malleable_pct 0, gap_s 10: .*sizes: "):
        measure([read_experiment(path)], ResultsStore(tmp_path / "results"), processes=1)
