"""A copy of the state folder of a living cluster is brought up: the other's jobs are its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from clusterkit.cluster import Cluster
from clusterkit.commands import run_command

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(200)]

WAITING = "while [ ! -e gate ]; do sleep 0.05; done; exit 3"


def choose(base: Path, patch: pytest.MonkeyPatch) -> Cluster:
    for name in ("state", "run"):
        patch.setenv(f"PLIANT_{name.upper()}_DIR", str(base / name))
    return Cluster(base, nodes=2, slots=2, strategy="fcfs")


def copied(living: Cluster, patch: pytest.MonkeyPatch) -> Cluster:
    """Copy the state folder of a cluster; what is called next is about the copy."""
    base = living.base / "copy"
    base.mkdir()
    subprocess.run(["cp", "-a", str(living.state), str(base / "state")], check=True)
    return choose(base, patch)


def ends_with_its_code(cluster: Cluster, job: int, gate: Path) -> None:
    """Let the job of a cluster go, and take the cluster down."""
    gate.touch()
    ended = cluster.wait_for(job, lambda each: each.final, "its end")
    cluster.down()
    assert ended.exit_code == 3


def begun(cluster: Cluster) -> int:
    """Start a job on both nodes that ends with code 3 once there is a gate."""
    cluster.up()
    job = cluster.client.submit("sh", "-c", WAITING, sizes=4, stdout="/dev/null")
    cluster.wait_for(job, lambda each: each.state == "RUNNING", "it to run")
    return job


def test_a_copy_of_a_living_cluster_does_it_no_harm(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    living = choose(state_dir.parent, monkeypatch)
    job = begun(living)
    there = copied(living, monkeypatch)
    there.up()
    lost = there.wait_for(job, lambda each: each.final, "the copy to know that it has no such job")
    assert lost.state == "NODE_FAIL", there.report(job)
    all_nodes = there.client.submit("true", sizes=4, stdout="/dev/null")
    there.wait_for(all_nodes, lambda each: each.state == "COMPLETED", "its nodes to be free")
    there.client.close()
    said = run_command("pliant", "down", timeout=60)
    assert (said.code, said.out) == (0, "down: all is gone\n"), said
    assert "cancel" not in said.err
    choose(state_dir.parent, monkeypatch)
    assert living.client.job(job).state == "RUNNING", living.report(job)
    ends_with_its_code(living, job, tmp_path / "gate")


def test_down_in_a_copy_that_was_never_up_does_no_harm(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    living = choose(state_dir.parent, monkeypatch)
    job = begun(living)
    copied(living, monkeypatch)
    assert run_command("pliant", "down", timeout=60).code == 0
    choose(state_dir.parent, monkeypatch)
    ends_with_its_code(living, job, tmp_path / "gate")


def test_a_folder_that_was_moved_has_its_jobs(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster = choose(state_dir.parent, monkeypatch)
    job = begun(cluster)
    cluster.client.close()
    assert run_command("pliant", "down", "--keep-jobs", timeout=60).code == 0
    base = state_dir.parent / "moved"
    base.mkdir()
    cluster.state.rename(base / "state")
    there = choose(base, monkeypatch)
    there.up()
    assert there.client.job(job).state == "RUNNING", there.report(job)
    ends_with_its_code(there, job, tmp_path / "gate")
