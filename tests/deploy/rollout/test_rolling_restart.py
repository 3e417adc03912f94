"""Restarts of daemons, one host after the other, end at the first host that fails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deploykit.facts import bare_facts, make_cluster
from pliant.client.ssh.session import HostError
from pliant.deploy.planning.cluster import Cluster
from pliant.deploy.planning.steps import Phase, Plan, Step
from pliant.deploy.rollout.agent_session import AgentSession
from pliant.deploy.rollout.deployment import Deployment, DeployRequest, Mode
from pliant.deploy.rollout.host_run import HostRun
from pliant.deploy.rollout.progress import QuietView


def restart(
    folder: Path, monkeypatch: pytest.MonkeyPatch, failing: tuple[str, str], **options: Any
) -> tuple[list[str], dict[str, HostRun]]:
    """Upgrade a server and three nodes; one operation fails on one host.

    Returns:
        The hosts whose daemons were restarted, in order, and the run of each host.
    """
    cluster = make_cluster(folder, "helper: false\nfolders: {prefix: '/opt/{name}'}")
    restarted: list[str] = []

    def connect_and_probe(run: HostRun, cluster: Cluster) -> None:
        run.facts = bare_facts(cluster, run.name)
        if failing == ("connect", run.name):
            run.fail(HostError(run.name, "connect", "it does not answer"))

    def plan(_: Deployment, run: HostRun, __: object) -> Plan:
        arguments = {"name": run.name}
        return Plan(
            (
                Step("install", "install", arguments),
                Step("restart", "restart", arguments, phase=Phase.START, is_restart=True),
            )
        )

    def call(
        _session: AgentSession, operation: str, arguments: Mapping[str, Any], *_: Any, **_more: Any
    ) -> dict[str, Any]:
        if (operation, arguments["name"]) == failing:
            raise HostError(str(arguments["name"]), operation, "it fails")
        if operation == "restart":
            restarted.append(str(arguments["name"]))
        return {}

    monkeypatch.setattr(HostRun, "connect_and_probe", connect_and_probe)
    monkeypatch.setattr(AgentSession, "call", call)
    monkeypatch.setattr(Deployment, "_plan", plan)
    monkeypatch.setattr("pliant.deploy.rollout.deployment.find_problems", lambda *_: [])
    deployment = Deployment(
        cluster, DeployRequest(Mode.UPGRADE, cluster.hosts, **options), QuietView()
    )
    deployment.run()
    return restarted, {run.name: run for run in deployment.selected}


def test_no_host_is_restarted_after_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarted, runs = restart(tmp_path, monkeypatch, ("restart", "n1"))
    assert restarted == ["head"]
    assert runs["n1"].has_failed
    assert runs["n2"].stopped_by == "n1"
    assert not runs["n2"].has_failed


def test_with_keep_going_the_others_are_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarted, runs = restart(tmp_path, monkeypatch, ("restart", "n1"), keeps_going=True)
    assert restarted == ["head", "n2"]
    assert runs["n2"].stopped_by == ""


def test_nothing_is_restarted_if_a_release_cannot_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarted, runs = restart(tmp_path, monkeypatch, ("install", "n2"))
    assert restarted == []
    assert [runs[name].stopped_by for name in ("head", "n1", "n2")] == ["n2", "n2", ""]


def test_a_host_that_cannot_be_reached_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarted, runs = restart(tmp_path, monkeypatch, ("connect", "n1"))
    assert restarted == ["head", "n2"]
    assert runs["n1"].has_failed
