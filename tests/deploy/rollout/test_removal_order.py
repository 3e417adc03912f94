"""A removal of a whole cluster: the server stays if another host could not be removed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deploykit.facts import RELEASE, bare_facts, make_cluster
from pliant.client.ssh.session import HostError
from pliant.deploy.planning.cluster import Cluster
from pliant.deploy.planning.facts import Manifest
from pliant.deploy.rollout.agent_session import AgentSession
from pliant.deploy.rollout.deployment import Deployment, DeployRequest, Mode
from pliant.deploy.rollout.host_run import HostRun
from pliant.deploy.rollout.progress import QuietView

MANIFEST = Manifest(cluster="blue", environment=RELEASE.environment)


def remove(cluster: Cluster, failing: str, monkeypatch: pytest.MonkeyPatch) -> list[HostRun]:
    """Remove all hosts, of which one fails; its connection or its removal stands for any step."""

    def connect_and_probe(run: HostRun, cluster: Cluster) -> None:
        run.facts = bare_facts(cluster, run.name, manifest=MANIFEST)

    def call(
        _session: AgentSession, operation: str, arguments: Mapping[str, Any], *_: Any, **_more: Any
    ) -> dict[str, Any]:
        if arguments["prefix"] == f"/opt/{failing}":
            raise HostError(failing, operation, "it fails")
        return {}

    monkeypatch.setattr(HostRun, "connect_and_probe", connect_and_probe)
    monkeypatch.setattr(AgentSession, "call", call)
    deployment = Deployment(cluster, DeployRequest(Mode.REMOVE, cluster.hosts), QuietView())
    deployment.run()
    return deployment.selected


def test_the_server_is_removed_after_all_others_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(tmp_path, "helper: false\nfolders: {prefix: '/opt/{name}'}")
    runs = remove(cluster, "n2", monkeypatch)
    assert [(run.name, run.has_failed, run.done) for run in runs] == (
        [("head", True, 0), ("n1", False, 1), ("n2", True, 0)]
    )
    assert runs[0].problems[0].remedy
    assert not any(run.has_failed for run in remove(cluster, "", monkeypatch))
