"""Nodes with memory, devices and properties: jobs run where they fit, and grow only there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterkit.applications import paced
from clusterkit.cluster import Cluster
from clusterkit.commands import run_command
from clusterkit.shared import running_cluster
from pliant.client import RequestError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

#: Runs until a file is there.
WAIT = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)"


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with running_cluster("fcfs+easy", nodes=2, slots=2) as cluster:
        yield cluster


def until(cluster: Cluster, file: Path, **needs: Any) -> int:
    return cluster.client.submit(
        sys.executable, "-c", WAIT, str(file), type="uni", stdout="/dev/null", **needs
    )


def nodes_of(cluster: Cluster, job: int) -> list[str]:
    return [node.name for node in cluster.client.nodes() if job in node.jobs]


def test_a_job_runs_on_the_nodes_that_it_names(shared: Cluster, tmp_path: Path) -> None:
    jobs = [until(shared, tmp_path / "end", nodelist="n2,n7") for _ in range(2)]
    other = until(shared, tmp_path / "end", exclude="n2")
    late = until(shared, tmp_path / "end", nodelist="n2")
    for job in (*jobs, other):
        shared.wait_for(job, lambda found: found.state == "RUNNING", "RUNNING")
    assert [nodes_of(shared, job) for job in (*jobs, other)] == [["n2"], ["n2"], ["n1"]]
    shared.wait_for(late, lambda found: "nodes n2" in found.reason, "its reason")
    assert "0 free processors fit it" in run_command("jobctl", "why", str(late)).out
    (tmp_path / "end").touch()
    for job in (*jobs, other, late):
        assert shared.client.wait(job).state == "COMPLETED"


def test_memory_is_counted_per_node(shared: Cluster, tmp_path: Path) -> None:
    """Each node has memory for one such job, and two slots."""
    (memory,) = {node.memory_bytes for node in shared.client.nodes()}
    assert memory is not None
    most = memory // 2 + 1
    jobs = [until(shared, tmp_path / "end", mem_per_cpu=most) for _ in range(3)]
    for job in jobs[:2]:
        shared.wait_for(job, lambda found: found.state == "RUNNING", "RUNNING")
    assert {*nodes_of(shared, jobs[0]), *nodes_of(shared, jobs[1])} == {"n1", "n2"}
    shared.wait_for(jobs[2], lambda found: "memory" in found.reason, "its reason")
    shared.kill("server")
    shared.up()
    assert shared.client.job(jobs[2]).state == "PENDING"
    (tmp_path / "end").touch()
    for job in jobs:
        assert shared.client.wait(job).state == "COMPLETED"


@pytest.mark.mpi
def test_memory_comes_with_the_processes_of_a_growth(shared: Cluster, tmp_path: Path) -> None:
    """Each node has memory for one process of this job, so it can have 2 processes at most."""
    (memory,) = {node.memory_bytes for node in shared.client.nodes()}
    assert memory is not None
    hurry = tmp_path / "hurry"
    words = [sys.executable, *paced("heat", tmp_path, hurry, 3)]
    job = shared.client.submit(
        *words, sizes="1-4", prefer=1, mem_per_cpu=memory // 2 + 1, stdout=str(tmp_path / "out")
    )
    shared.wait_malleable(job)
    with pytest.raises(RequestError, match="free on nodes that fit it: 1"):
        shared.client.resize(job, 3)
    shared.resize(job, 2)
    assert sorted(nodes_of(shared, job)) == ["n1", "n2"]
    hurry.touch()
    assert shared.client.wait(job).state == "COMPLETED"


def test_what_no_node_has_is_refused_with_the_reason(shared: Cluster, tmp_path: Path) -> None:
    for needs, reason in (
        ({"gpus": 1}, "1 gpu for each process .* the largest node has no gpu"),
        ({"mem_per_cpu": "900T"}, "900T memory for each process .* the largest node has"),
        ({"constraint": "fast"}, "constraint fast: no node has these properties"),
        ({"nodelist": "x[1-2]"}, r"nodelist x\[1-2\]: no node is left"),
    ):
        with pytest.raises(RequestError, match=reason):
            until(shared, tmp_path / "end", **needs)
    done = run_command("jobsub", "--query", "--gpus", "1", sys.executable, "-c", "pass")
    assert done.code == 1
    assert "the largest node has no gpu" in done.out


def test_lists_of_nodes_on_the_command_line(shared: Cluster) -> None:
    shown = json.loads(run_command("nodestat", "--json", "n[1-2]").out)
    assert [(node["name"], node["gres"], node["properties"]) for node in shown] == [
        ("n1", {}, []),
        ("n2", {}, []),
    ]
    run_command("pliant", "node", "drain", "n[1-2]", "--reason", "a test")
    states = {node.name: node.state for node in shared.client.nodes()}
    assert set(states.values()) == {"DRAINED"}
    run_command("pliant", "node", "resume", "n[1-2]")
