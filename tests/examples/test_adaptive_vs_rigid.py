"""The published experiments with real jobs: which rows there are, and a short run of two rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pliant.client.api import Event
from pliant.examples.experiments.adaptive_vs_rigid import __main__ as command
from pliant.examples.experiments.adaptive_vs_rigid.cluster import results_folder
from pliant.examples.experiments.adaptive_vs_rigid.experiment_rows import Row, select_rows
from pliant.examples.experiments.adaptive_vs_rigid.recording import metrics, refusals, resizes
from pliant.examples.experiments.adaptive_vs_rigid.validation import validate
from pliant.examples.experiments.adaptive_vs_rigid.validation_report import write_validation
from pliant.simulator.experiments.definition.definitions import ExperimentError
from pliant.simulator.experiments.definition.reading import find_experiment
from pliant.simulator.experiments.reporting.real_runs import REAL_RUNS, read_real_runs
from pliant.simulator.experiments.running.tasks import workload_of
from testkit import wait_until

MODULE = "pliant.examples.experiments.adaptive_vs_rigid"


def rows(*names: str, **where: list[str]) -> list[Row]:
    return select_rows(names, where, jobs=12, seed=1, scale=0.1)


def test_rows_without_malleable_jobs_are_run_once() -> None:
    found = rows("ghafoor-4.1")
    assert len(found) == 1 + 6 * 4
    assert [row.setup["malleable_pct"] for row in found].count(0) == 1
    assert len({row.file_name for row in found}) == len(found)


def test_jobs_are_those_of_the_simulation() -> None:
    (row,) = rows("kumar-4.4", mean_interarrival_s=["60"], **{"class": ["adaptive"]})
    cell = find_experiment("kumar-4.4").find({"mean_interarrival_s": 60, "class": "adaptive"})
    assert cell is not None
    assert row.jobs() == workload_of({**cell.spec, "jobs": 12}, seed=1).jobs
    assert max(job.sizes.max for job in row.jobs()) == 16


def test_each_experiment_has_a_scale_of_its_own() -> None:
    names = ["ghafoor-4.1", "kumar-4.4"]
    found = select_rows(names, {}, jobs=2, seed=1, scale=None)
    assert {(row.experiment, row.scale) for row in found} == {(names[0], 0.1), (names[1], 0.5)}


def test_only_experiments_with_the_chosen_axes_are_run() -> None:
    found = rows("ghafoor-4.1", "kumar-4.4", malleable_pct=["100"])
    assert {row.experiment for row in found} == {"ghafoor-4.1"}
    assert len(found) == 4
    with pytest.raises(ExperimentError, match="no row has all of these axes"):
        rows("ghafoor-4.1", "kumar-4.4", malleable_pct=["100"], mean_interarrival_s=["60"])


@pytest.mark.parametrize(
    ("name", "where", "message"),
    [
        ("none", {}, "there is no experiment 'none'"),
        ("ghafoor-4.1", {"size": ["2"]}, "--where size: no such axis; there are: malleable_pct"),
        ("ghafoor-4.1", {"malleable_pct": ["11"]}, "--where malleable_pct=11: no such row"),
        ("kumar-4.3", {}, "processors, and the cluster has 16"),
        ("koala-7", {}, "cannot be run with real jobs"),
    ],
)
def test_what_cannot_be_run_is_refused(name: str, where: Any, message: str) -> None:
    with pytest.raises(ExperimentError) as raised:
        rows(name, **where)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--scale=0", "expected a number above 0"),
        ("--jobs=none", "expected a whole number >= 1"),
        ("--where=class", "expected AXIS=VALUE,..."),
    ],
)
def test_wrong_options_are_refused(
    option: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["run", option])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "there are no results; use the action run first"), ("[1]", "row.json: this is not")],
)
def test_validation_needs_results(
    content: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "kumar-4.4").mkdir()
        (tmp_path / "kumar-4.4" / "row.json").write_text(content)
    assert command.main(["validate", "--results", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err


def test_two_runs_do_not_use_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with results_folder(tmp_path):
        assert command.main(["run", "--jobs", "1", "--results", str(tmp_path)]) == 1
    assert "another run uses this folder" in capsys.readouterr().err


def recorded() -> dict[str, Any]:
    """Return the record of a run of two jobs on 16 processors, whose simulation is exact."""
    (row,) = select_rows(
        ["kumar-4.4"],
        {"mean_interarrival_s": ["500"], "class": ["traditional"]},
        jobs=2,
        seed=1,
        scale=0.1,
    )
    jobs: list[dict[str, Any]] = []
    for job in row.jobs():
        submit = 0.1 * job.submit
        start = max(submit, jobs[-1]["end_s"]) if jobs else submit
        ready = start + 1.0
        done = ready + 0.1 * job.runtime
        phase = {"start_s": start, "end_s": done + 0.5, "processors": job.requested}
        record = {"id": job.id, "submit_s": submit, "start_s": start, "first_iteration_s": ready}
        record |= {"last_iteration_s": done, "end_s": done + 0.5, "phases": [phase]}
        jobs.append({**record, "work": job.work, "state": "COMPLETED", "resizes": []})
    result = {"row": {**asdict(row), "label": row.label}, "processors": 16, "scale": 0.1}
    return {**result, "load_average": 1.0, "jobs": jobs, "metrics": metrics(jobs, 16, 0.1)}


def test_a_run_without_disturbance_is_simulated_exactly() -> None:
    """The simulator gets the measured costs of starts and ends."""
    found = validate(recorded())
    assert (found.costs["start_s"], found.costs["end_s"]) == pytest.approx((1.0, 0.5))
    for name, value in found.summary().items():
        assert value == pytest.approx(0.0, abs=1e-9), name


def test_a_late_end_is_the_distance_of_the_completion() -> None:
    result = recorded()
    result["jobs"][0]["start_s"] += 2.0
    result["jobs"][0]["first_iteration_s"] += 2.0
    result["jobs"][0]["last_iteration_s"] += 2.0
    result["jobs"][0]["end_s"] += 2.0
    late, exact = validate(result).distances
    assert late.end_s == pytest.approx(late.real_end_s - 2.0)
    assert late.of_turnaround == pytest.approx(2.0 / late.real_turnaround_s)
    assert exact.of_end == pytest.approx(0.0, abs=1e-9)


def test_the_report_of_a_validation_has_tables_and_plots(tmp_path: Path) -> None:
    names = [path.name for path in write_validation(tmp_path, [validate(recorded())])]
    assert [name for name in names if name.endswith("completion.png")]
    page = (tmp_path / "validation.md").read_text()
    assert "| kumar-4.4: mean_interarrival_s 500, class traditional, seed 1 | utilization |" in page
    (entry,) = json.loads((tmp_path / "validation.json").read_text())
    assert entry["summary"]["turnaround_mean"] == pytest.approx(0.0, abs=1e-9)
    (real,) = read_real_runs(tmp_path / REAL_RUNS)
    assert (real.experiment, real.jobs) == ("kumar-4.4", 2)
    assert real.distance == pytest.approx(0.0, abs=1e-9)
    assert real.with_costs["utilization_work"] == pytest.approx(real.real["utilization_work"])


def event(time: float, kind: str, text: str = "", **data: Any) -> Event:
    return Event(seq=1, time=time, kind=kind, job=1, text=text, data={"resize": 1, **data})


def test_a_refusal_has_the_reason_of_the_application() -> None:
    sent = event(103.0, "offer.sent", "offered 4", **{"direction": "receive", "size": 4, "from": 2})
    answered = event(104.0, "offer.answered", answer="REJECT", reason="too little to gain")
    declined = event(104.0, "offer.declined", "declined")
    found = resizes([sent, answered, declined], 100.0)
    (refused,) = refusals([{"id": 7, "resizes": found}])
    assert refused == {
        "job": 7,
        "at_s": 4.0,
        "direction": "receive",
        "from": 2,
        "to": 4,
        "outcome": "declined",
        "reason": "too little to gain",
    }


def test_the_metrics_of_a_run_are_in_seconds_of_the_model() -> None:
    phases = [
        {"start_s": 1.0, "end_s": 3.0, "processors": 8},
        {"start_s": 3.0, "end_s": 5.0, "processors": 4},
    ]
    job = {"id": 1, "work": 240.0, "state": "COMPLETED", "resizes": [], "phases": phases}
    job |= {"submit_s": 0.0, "start_s": 1.0, "end_s": 5.0}
    found = metrics([job], 16, 0.1)
    assert found["utilization"] == pytest.approx(24 / 80)
    assert found["utilization_work"] == pytest.approx(24 / 80)
    assert (found["mean_wait_s"], found["mean_execution_s"]) == pytest.approx((10.0, 40.0))
    assert found["schedule_span_s"] == pytest.approx(50.0)


@pytest.fixture(name="start")
def _start(tmp_path: Path) -> Iterator[Any]:
    """Return a function that starts the experiment; end what it started after the test."""
    started = []
    words = ["run", "kumar-4.4", "--where", "mean_interarrival_s=45", "--jobs", "2"]
    # With this seed, the first job shrinks for the second one.
    words += ["--seed", "2", "--scale", "0.03", "--results", str(tmp_path / "results")]

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=100)


@pytest.mark.cluster
@pytest.mark.mpi
@pytest.mark.timeout(900)
def test_adaptive_jobs_use_more_of_a_real_cluster(start: Any, tmp_path: Path) -> None:
    """The run is killed in its second row; the same command then continues with this row."""
    folder = tmp_path / "results" / "kumar-4.4"
    first = start()
    wait_until(lambda: any(folder.glob("*adaptive*.json")), what="a row to end", timeout=400)
    (before,) = [path.stat().st_mtime_ns for path in folder.glob("*adaptive*.json")]
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()

    printed, said = start().communicate(timeout=450)
    assert "1 of 2 rows have a result" in said, said
    found = {path.name.split("-")[-3]: path for path in folder.glob("*.json")}
    assert sorted(found) == ["adaptive", "traditional"], said
    assert found["adaptive"].stat().st_mtime_ns == before
    results = {name: json.loads(path.read_text()) for name, path in found.items()}
    adaptive, traditional = results["adaptive"], results["traditional"]
    assert adaptive["metrics"]["completed"] == traditional["metrics"]["completed"] == 2
    assert adaptive["metrics"]["utilization"] > traditional["metrics"]["utilization"]
    for job in adaptive["jobs"]:
        moments = ("submit_s", "start_s", "first_iteration_s", "last_iteration_s", "end_s")
        times = [job[name] for name in moments]
        assert times == sorted(times)
    assert any(job["resizes"] for job in adaptive["jobs"])
    assert not any(job["resizes"] for job in traditional["jobs"])
    assert all(entry["reason"] for entry in adaptive["refusals"])
    assert "| kumar-4.4 | mean_interarrival_s 45, class adaptive | utilization |" in printed
    assert not (tmp_path / "results" / "cluster").exists()
    found_distances = [validate(result).distances for result in results.values()]
    assert [len(each) for each in found_distances] == [2, 2]
