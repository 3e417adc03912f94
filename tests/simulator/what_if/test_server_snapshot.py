"""Simulations that begin with a running cluster."""

from __future__ import annotations

from typing import Any

import pytest

from pliant.simulator.inputs.simulation_errors import SettingsError
from pliant.simulator.what_if.__main__ import simulate_all
from pliant.simulator.what_if.server_snapshot import read_snapshot

NOW = 1.8e9


def row(number: int, sizes: str = "2", **values: Any) -> dict[str, Any]:
    """Return a job of a snapshot, which waits unless ``ranks`` are given."""
    job: dict[str, Any] = {
        "id": number,
        "name": f"job{number}",
        "user": "ann",
        "account": "",
        "arrival": NOW - 100 + number,
        "sizes": sizes,
        "prefer": None,
        "requested": int(sizes.partition("-")[0]),
        "estimate_s": 100.0,
        "limit_s": None,
        "speedup": "linear",
        "measured": {},
        "contract": None,
        "priority": 0,
        "node_needs": None,
        "start": None,
        "ranks": [],
        "malleable": False,
        "done": 0.0,
    }
    return job | values


def node(name: str, first: int, slots: int = 4) -> dict[str, Any]:
    return {
        "name": name,
        "cluster": "default",
        "first": first,
        "slots": slots,
        "memory_bytes": 0,
        "gres": {},
        "properties": [],
    }


def futures(
    jobs: list[dict[str, Any]], *strategies: str, nodes: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    snapshot = {"jobs": jobs, "nodes": nodes or [node("n1", 0)], "now": NOW}
    question = {
        "snapshot": snapshot,
        "strategies": [(name, {}) for name in strategies],
        "assume_s": 50.0,
    }
    return simulate_all(question)


def times(answer: dict[str, Any], place: int = 0) -> dict[int, tuple[float, float]]:
    jobs = answer["outcomes"][place]["jobs"]
    return {int(n): (round(job["start"], 3), round(job["end"], 3)) for n, job in jobs.items()}


def test_a_running_job_continues_on_its_processors() -> None:
    running = row(1, ranks=[2, 3], start=NOW - 40, done=80.0)
    waiting = [row(2, "4"), row(3, "2", estimate_s=50.0)]
    answer = futures([running, *waiting], "fcfs", "fcfs+easy")
    assert times(answer) == {1: (-40, 60), 2: (60, 160), 3: (160, 210)}
    assert times(answer, 1) == {1: (-40, 60), 2: (60, 160), 3: (0, 50)}


def test_strategies_are_compared_from_the_same_moment() -> None:
    jobs = [row(1, "4", estimate_s=100.0), row(2, "4", estimate_s=10.0)]
    answer = futures(jobs, "fcfs", "sjf")
    assert times(answer, 0) == {1: (0, 100), 2: (100, 110)}
    assert times(answer, 1) == {1: (10, 110), 2: (0, 10)}
    first, second = answer["outcomes"]
    assert first["mean_wait_s"] - second["mean_wait_s"] == pytest.approx(45)
    assert first["end_s"] == second["end_s"] == pytest.approx(110)
    assert first["utilization"] == pytest.approx(1.0)


def test_a_malleable_job_changes_its_size() -> None:
    running = row(1, "1-4", ranks=[0], start=NOW - 20, done=20.0, malleable=True)
    answer = futures([running], "equipartition")
    job = answer["outcomes"][0]["jobs"]["1"]
    assert job["sizes"] == [4]  # it grows at once
    assert job["end"] == pytest.approx(80 / 4)


def test_a_job_that_is_not_malleable_keeps_its_size() -> None:
    running = row(1, "1-4", ranks=[0], start=NOW - 20, done=20.0)
    job = futures([running], "equipartition")["outcomes"][0]["jobs"]["1"]
    assert (job["sizes"], job["end"]) == ([1], pytest.approx(80))


def test_a_job_arrives_at_its_begin_time() -> None:
    answer = futures([row(1, "4", arrival=NOW + 30), row(2, "4", estimate_s=20.0)], "fcfs")
    assert times(answer) == {1: (30, 130), 2: (0, 20)}


def test_times_that_jobs_do_not_state() -> None:
    jobs = [
        row(1, "1", estimate_s=None),
        row(2, "1", estimate_s=None, limit_s=70.0),
        row(3, "1", ranks=[3], start=NOW - 500, done=None),  # overdue, and of another user
        row(4, "1", ranks=[2], start=NOW - 90, limit_s=95.0, done=10.0),
    ]
    answer = futures(jobs, "fcfs")
    ends = {number: end for number, (_, end) in times(answer).items()}
    assert ends == {1: 50, 2: 70, 3: pytest.approx(0, abs=0.01), 4: 5}
    assert answer["assumed"] == [1]


def test_jobs_that_cannot_be_simulated_are_named() -> None:
    jobs = [row(1, "16"), row(2, "1", ranks=[99], start=NOW), row(3, "1")]
    answer = futures(jobs, "fcfs")
    assert (answer["too_wide"], answer["on_other_nodes"]) == ([1], [2])
    assert set(times(answer)) == {3}


def test_processors_with_gaps_between_nodes() -> None:
    running = row(1, "2", ranks=[9, 12], start=NOW, done=0.0)
    nodes = [node("n1", 8, 2), node("n2", 12, 2)]
    found = read_snapshot({"jobs": [running], "nodes": nodes, "now": NOW}, 1.0)
    assert found.running == {1: (1, 2)}
    assert times(futures([running], "fcfs", nodes=nodes)) == {1: (0, 100)}


def test_a_cluster_without_nodes() -> None:
    with pytest.raises(SettingsError, match="no node"):
        read_snapshot({"jobs": [], "nodes": [], "now": NOW}, 1.0)


def test_a_deadline_stays_where_it_is() -> None:
    contract = {"deadline_s": 150.0, "profit": 10.0, "soft": 1.0, "penalty": 0.0}
    late = row(1, "4", contract=contract, arrival=NOW - 100)
    found = read_snapshot({"jobs": [late], "nodes": [node("n1", 0)], "now": NOW}, 1.0)
    (job,) = found.jobs
    assert job.contract is not None
    assert job.contract.deadline(job.submit) == 50
