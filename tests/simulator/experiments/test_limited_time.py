"""With a time limit, all experiments get the same number of seeds, and reports claim no more."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from pliant.simulator.experiments import experiment_command
from pliant.simulator.experiments.definition.definitions import Experiment
from pliant.simulator.experiments.definition.reading import read_experiment
from pliant.simulator.experiments.reporting.report import as_text
from pliant.simulator.experiments.reporting.report_files import write_report
from pliant.simulator.experiments.results import ExperimentOutcome, conclude
from pliant.simulator.experiments.running import measuring
from pliant.simulator.experiments.running.measuring import Measured, ProgressLine, measure
from pliant.simulator.experiments.running.pool import Done, Task
from pliant.simulator.experiments.running.results_store import ResultsStore

DEFINITION = """
title: Two shares
source: nobody
run: {workload: ghafoor, parameters: {jobs: 20}, strategy: max-fit}
seeds: 3
sweep: {malleable_pct: [0, 50, 100]}
vary: {malleable_pct: parameters.malleable}
metrics: {utilization: {within: 0.1}}
claims:
  - {metric: utilization, of: {malleable_pct: 100}, above: {malleable_pct: 0}, by: 0.2}
  - {metric: utilization, highest: {malleable_pct: [100]}}
printed:
  - {source: Table 1, metric: utilization, down: malleable_pct, rows: {0: 0.4, 50: 0.6, 100: 0.8}}
plots: [{y: utilization, x: malleable_pct}]
"""


class Machine:
    """A machine with a clock of its own, on which a run takes as long as its cell says."""

    def __init__(self, seconds: Callable[[Task], float] = lambda _: 10.0) -> None:
        self.now = 0.0
        self.ran: list[tuple[str, int]] = []
        self._seconds = seconds

    def clock(self) -> float:
        return self.now

    def run_all(self, tasks: Iterable[Task], _: int, done: Done) -> None:
        for task in tasks:
            self.now += self._seconds(task)
            self.ran.append((task.label, task.seed))
            share = task.spec["parameters"]["malleable"]
            done(task, {"utilization": 0.4 + share / 250 + task.seed / 1000})


@pytest.fixture
def experiments(tmp_path: Path) -> list[Experiment]:
    for name in ("first", "second"):
        (tmp_path / f"{name}.yaml").write_text(DEFINITION, encoding="utf-8")
    return [read_experiment(tmp_path / f"{name}.yaml") for name in ("first", "second")]


@pytest.fixture
def run(
    experiments: list[Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Machine, float], list[Measured]]:
    """Measure on a machine within so many seconds, with results that later calls continue."""

    def call(machine: Machine, seconds: float) -> list[Measured]:
        monkeypatch.setattr(measuring, "run_all", machine.run_all)
        store = ResultsStore(tmp_path / "results")
        deadline = machine.now + seconds
        return measure(experiments, store, deadline=deadline, clock=machine.clock)

    return call


def outcome(experiment: Experiment, seeds: tuple[int, int, int]) -> ExperimentOutcome:
    """Return the outcome with so many runs of each of the three cells."""
    values = (0.41, 0.6, 0.8)
    return conclude(
        experiment,
        [
            [{"utilization": value + seed / 1000} for seed in range(number)]
            for value, number in zip(values, seeds, strict=True)
        ],
    )


def numbers(measured: list[Measured]) -> list[list[int]]:
    """Return the number of runs of each cell of each experiment."""
    return [[len(cell) for cell in each] for each in measured]


def test_the_first_seed_of_all_experiments_comes_first(
    run: Callable[[Machine, float], list[Measured]],
) -> None:
    machine = Machine()
    assert numbers(run(machine, 1000)) == [[3, 3, 3], [3, 3, 3]]
    assert [seed for _, seed in machine.ran] == [1] * 6 + [2] * 6 + [3] * 6
    assert len(set(machine.ran)) == 18


def test_no_run_is_started_that_does_not_end_in_time(
    run: Callable[[Machine, float], list[Measured]],
) -> None:
    machine = Machine()
    assert numbers(run(machine, 85)) == [[2, 2, 1], [1, 1, 1]]
    assert machine.now == 80


def test_a_repeated_call_continues_until_nothing_is_missing(
    run: Callable[[Machine, float], list[Measured]],
) -> None:
    machine = Machine()
    found = [numbers(run(machine, 65)) for _ in range(3)]
    assert found == [[[1] * 3] * 2, [[2] * 3] * 2, [[3] * 3] * 2]
    assert len(set(machine.ran)) == 18
    assert run(machine, 0) == run(machine, 65)
    assert len(machine.ran) == 18


def test_a_short_run_is_started_where_a_long_one_does_not_fit(
    run: Callable[[Machine, float], list[Measured]],
) -> None:
    machine = Machine(lambda task: 50.0 if "malleable_pct 0" in task.label else 5.0)
    # The first seed of all cells takes 120 s. Then 48 s are left.
    assert numbers(run(machine, 168)) == [[1, 3, 3], [1, 3, 3]]
    # Durations of earlier calls are known.
    assert numbers(run(machine, 60)) == [[2, 3, 3], [1, 3, 3]]


def test_a_cell_that_has_not_been_run_is_expected_to_take_as_long_as_others(
    run: Callable[[Machine, float], list[Measured]],
) -> None:
    assert numbers(run(Machine(), 15)) == [[1, 0, 0], [1, 0, 0]]


def test_a_missing_seed_ends_the_runs_that_are_counted(
    experiments: list[Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs of runs have the same seed also if a command was killed before an earlier seed."""

    def reversed_order(tasks: Iterable[Task], _: int, done: Done) -> None:
        for task in reversed(list(tasks)[2:]):
            done(task, {"utilization": float(task.seed)})

    monkeypatch.setattr(measuring, "run_all", reversed_order)
    measured = measure(experiments[:1], ResultsStore(tmp_path / "results"))
    assert numbers(measured) == [[0, 0, 3]]


def test_the_time_left_is_at_most_that_until_the_deadline(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = iter([0.0, 10.0])
    line = ProgressLine(deadline=40.0, clock=lambda: next(times))
    line(0, 20)
    line(2, 20)
    line.end()
    err = capsys.readouterr().err
    assert "2 of 20 runs, 30 s left" in err
    assert "2 of 20 runs are done; the same command continues" in err


def test_a_single_run_has_no_interval_and_no_verdict(experiments: list[Experiment]) -> None:
    found = outcome(experiments[0], (1, 1, 1))
    assert {line.verdict for line in found.lines} == {"too few runs"}
    assert found.verdict == "too few runs"
    text = as_text(found)
    assert "3 of 9 runs have been done. Each line of the table has 1 of them." in text
    (row,) = (line.split() for line in text.splitlines() if line.startswith("50 "))
    assert row == ["50", "utilization", "0.6000", "0.6000", "1", "too", "few", "runs"]
    assert "utilization above malleable_pct 0 by at least 0.2: too few runs" in text
    assert "highest at malleable_pct 100: too few runs" in text
    assert "claims hold" not in text


def test_cells_without_runs_are_named(experiments: list[Experiment], tmp_path: Path) -> None:
    none = outcome(experiments[1], (0, 0, 0))
    folder = tmp_path / "report"
    folder.mkdir()
    pages = write_report(folder, [outcome(experiments[0], (2, 2, 0)), none], "command")
    text = pages[0].read_text(encoding="utf-8")
    assert "| first | Two shares | nobody | too few runs | 4 of 9 |" in text
    assert "| second | Two shares | nobody | too few runs | 0 of 9 |" in text
    assert "- malleable_pct 100\n" in text
    assert "0 of 9 runs have been done." in text
    assert not list(folder.glob("plots/second*"))


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((0.41, 0.6, 0.8), "reproduced"),
        ((0.8, 0.6, 0.2), "not reproduced"),
        ((0.41, 0.6, 0.74), "too few runs"),  # The interval of 0.74 leaves the tolerance.
    ],
)
def test_missing_runs_that_cannot_change_a_verdict_do_not_prevent_it(
    experiments: list[Experiment], values: tuple[float, ...], verdict: str
) -> None:
    measured: Measured = [
        [{"utilization": each + seed / 125} for seed in range(2)] for each in values
    ]
    assert conclude(experiments[0], measured).verdict == verdict


@pytest.mark.usefixtures("experiments")
def test_a_report_with_a_limit_of_time_is_written_from_what_there_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measuring, "run_all", Machine().run_all)
    words = ["first.yaml", "--within", "0s"]
    assert experiment_command.main(["report", *words, "--out", "report"]) == 0
    assert "0 of 9 runs are done; the same command continues" in capsys.readouterr().err
    page = (tmp_path / "report" / "experiments.md").read_text(encoding="utf-8")
    assert "$ pliant experiment report first.yaml --within 0s" in page
    assert experiment_command.main(["run", "first.yaml", "--within", "1h30m", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["runs"] for row in rows] == [3, 3, 3]


def test_a_report_on_all_experiments_names_those_without_a_workload_log(
    experiments: list[Experiment],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PLIANT_WORKLOADS", raising=False)
    text = DEFINITION.replace("workload: ghafoor", "workload: some.swf.gz")
    (tmp_path / "second.yaml").write_text(text, encoding="utf-8")
    paths = {f"{each.name}.yaml": tmp_path for each in experiments}
    monkeypatch.setattr(experiment_command, "known_experiments", lambda: paths)
    monkeypatch.setattr(measuring, "run_all", Machine().run_all)
    assert experiment_command.main(["report", "--out", "report"]) == 0
    assert "left out: second needs some.swf.gz" in capsys.readouterr().err
    page = (tmp_path / "report" / "experiments.md").read_text(encoding="utf-8")
    assert "- second needs some.swf.gz" in page
    assert "| 9 of 9 |" in page
    assert "| second |" not in page


@pytest.mark.parametrize("time", ["20", "x", "m", "20 m", "1.5h"])
def test_a_time_needs_whole_numbers_with_units(
    time: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        experiment_command.main(["report", "--within", time])
    assert caught.value.code == 2
    assert "20m" in capsys.readouterr().err
