"""Plans: from a bare host to a running one, nothing for a host that is as it should be."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deploykit.facts import NEXT_RELEASE, RELEASE, bare_facts, make_cluster
from pliant.deploy.planning.cluster import Cluster
from pliant.deploy.planning.facts import Daemon, HostFacts, Manifest
from pliant.deploy.planning.host_daemons import daemon_names, token_arguments
from pliant.deploy.planning.plan import PlanError, plan_deployment, plan_rollback
from pliant.deploy.planning.release import Release
from pliant.deploy.planning.removal import NodeUse, plan_removal
from pliant.deploy.planning.steps import Payload, Phase, Plan

PLAIN = "account: alice\nhelper: false"


def plan(cluster: Cluster, facts: HostFacts, name: str = "n1", **more: Any) -> Plan:
    (host,) = cluster.select([name])
    release = more.pop("release", RELEASE)
    return plan_deployment(cluster, host, facts, release, **more)


def operations(found: Plan) -> list[str]:
    return [step.operation for step in found.steps]


def deployed(
    cluster: Cluster, name: str, release: Release = RELEASE, *, systemd: bool = False
) -> HostFacts:
    """Return the facts of a host after its plan was carried out."""
    (host,) = cluster.select([name])
    facts = bare_facts(cluster, name, has_systemd=systemd)
    first = plan_deployment(cluster, host, facts, release)
    files = {
        step.arguments["path"]: hashlib.sha256(step.arguments["text"].encode()).hexdigest()
        for step in first.steps
        if step.operation == "write-file"
    }
    environment = release.environment
    daemon = Daemon(pid=7, environment=environment)
    return msgspec.structs.replace(
        facts,
        files={**facts.files, **files},
        folders=[
            each["path"]
            for step in first.steps
            if step.operation == "make-folders"
            for each in step.arguments["folders"]
        ],
        environments=[environment],
        current=environment,
        manifest=Manifest(
            cluster="blue", environment=environment, files=files, folders=["/opt/pliant"]
        ),
        daemons=dict.fromkeys(daemon_names(cluster, host), daemon),
        server_roots=["A"] if name == "head" else [],
        node_roots=["A"] if name != "head" else [],
    )


def test_a_bare_server(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, PLAIN)
    found = plan(cluster, bare_facts(cluster, "head"), "head")
    assert operations(found) == [
        "make-folders",
        "install-environment",
        "write-file",
        "run-command",
        "start-daemon",
        "switch-environment",
    ]
    (init,) = (step for step in found.steps if step.operation == "run-command")
    assert init.arguments["argv"][1:] == (
        ["cluster", "init", "--name", "blue", "--address", "10.0.0.1"]
    )


def test_a_bare_node_joins_with_a_token_of_the_server(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, PLAIN)
    found = plan(cluster, bare_facts(cluster, "n1"))
    (join,) = (step for step in found.steps if step.payload is Payload.TOKEN)
    assert join.phase is Phase.START
    assert join.arguments["argv"][-2:] == ["join", "-"]  # the token is not among the arguments
    assert operations(found)[-4:] == [
        "start-daemon",
        "wait-connected",
        "wait-node",
        "switch-environment",
    ]
    (host,) = cluster.select(["n1"])
    token = token_arguments(cluster, host)["words"]
    assert token[1:] == (
        ["cluster", "token", "--node", "n1", "--slots", "4", "--server", "10.0.0.1:7002"]
    )


def test_nothing_is_prepared_on_one_host_that_needs_another(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    for name in ("head", "n1"):
        found = plan(cluster, bare_facts(cluster, name), name)
        prepared = {step.operation for step in found.of(Phase.PREPARE)}
        assert not prepared & {"run-command", "start-daemon", "wait-node", "switch-environment"}
        assert found.steps == (*found.of(Phase.PREPARE), *found.of(Phase.START))


@pytest.mark.parametrize("systemd", [False, True])
@pytest.mark.parametrize("more", [PLAIN, "", "users: [bob]\ninterface: eth0"])
@pytest.mark.parametrize("name", ["head", "n1"])
def test_a_deployed_host_has_nothing_to_change(
    name: str, more: str, systemd: bool, tmp_path: Path
) -> None:
    cluster = make_cluster(tmp_path, more)
    assert plan(cluster, deployed(cluster, name, systemd=systemd), name).steps == ()


def test_the_root_helper_starts_before_the_controller_and_after_the_node_has_joined(
    tmp_path: Path,
) -> None:
    cluster = make_cluster(tmp_path)
    found = plan(cluster, bare_facts(cluster, "n1", accounts={"pliant": None}))
    words = [step.text.split(" from ")[0] for step in found.of(Phase.START)]
    assert [word.split(" as ")[0] for word in words[:3]] == (
        ["join cluster blue", "start helper", "start node"]
    )
    assert operations(found)[0] == "make-account"
    join = found.of(Phase.START)[0]
    assert join.arguments["argv"][-2:] == ["--account", "pliant"]


def test_systemd_gets_units_of_the_release(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    found = plan(cluster, bare_facts(cluster, "n1", has_systemd=True))
    texts = {
        step.arguments["path"]: step.arguments["text"]
        for step in found.steps
        if step.operation == "write-file"
    }
    unit = texts["/etc/systemd/system/pliant-nodectl.service"]
    assert f"ExecStart=/opt/pliant/{RELEASE.environment}/bin/pliant nodectl" in unit
    assert "slots: 4" in texts["/etc/pliant/node.yaml"]
    assert operations(found).count("start-unit") == 2
    assert "use-systemd" in operations(found)


def test_a_daemon_that_does_not_run_is_started(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, PLAIN)
    facts = msgspec.structs.replace(deployed(cluster, "n1"), daemons={})
    found = plan(cluster, facts)
    assert operations(found) == ["start-daemon", "wait-connected", "wait-node"]
    assert not found.is_rolling


def test_a_changed_setting_restarts_its_daemon(tmp_path: Path) -> None:
    facts = deployed(make_cluster(tmp_path, PLAIN), "n1")
    found = plan(make_cluster(tmp_path, f"{PLAIN}\ninterface: eth0"), facts)
    assert operations(found)[:2] == ["write-file", "start-daemon"]
    assert found.is_rolling


def test_folders_that_are_gone_after_a_reboot_are_made_again(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    facts = deployed(cluster, "n1")
    left = [folder for folder in facts.folders if not folder.startswith("/run/")]
    found = plan(cluster, msgspec.structs.replace(facts, folders=left, daemons={}))
    assert operations(found)[0] == "make-folders"


def test_a_daemon_restarts_although_its_settings_were_written_by_a_run_that_failed(
    tmp_path: Path,
) -> None:
    cluster = make_cluster(tmp_path, PLAIN)
    facts = deployed(cluster, "n1")
    assert facts.manifest is not None
    manifest = msgspec.structs.replace(facts.manifest, to_restart=["node"])
    found = plan(cluster, msgspec.structs.replace(facts, manifest=manifest))
    assert operations(found) == ["start-daemon", "wait-connected", "wait-node"]
    assert found.is_rolling


def test_systemd_makes_an_account_that_an_earlier_run_did_not_make(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    facts = deployed(cluster, "n1", systemd=True)
    found = plan(cluster, msgspec.structs.replace(facts, accounts={"pliant": None}, daemons={}))
    assert operations(found)[0] == "use-systemd"


def test_a_setting_that_was_edited_on_the_host_is_kept(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, PLAIN)
    facts = deployed(cluster, "n1")
    edited = msgspec.structs.replace(facts, files={**facts.files, "/etc/pliant/node.yaml": "00"})
    found = plan(cluster, edited)
    assert (found.steps, len(found.notes)) == ((), 1)


def test_another_release_needs_an_upgrade(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, PLAIN)
    facts = deployed(cluster, "n1")
    with pytest.raises(PlanError, match="--upgrade"):
        plan(cluster, facts, release=NEXT_RELEASE)
    found = plan(cluster, facts, release=NEXT_RELEASE, upgrade=True)
    assert operations(found) == [
        "install-environment",
        "start-daemon",
        "wait-connected",
        "wait-node",
        "switch-environment",
    ]
    assert found.is_rolling


def test_a_rollback_returns_to_the_environment_before(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, PLAIN)
    (host,) = cluster.select(["n1"])
    facts = deployed(cluster, "n1", NEXT_RELEASE)
    with pytest.raises(PlanError, match="no earlier release"):
        plan_rollback(cluster, host, facts)
    assert facts.manifest is not None
    manifest = msgspec.structs.replace(facts.manifest, previous=RELEASE.environment)
    both = [RELEASE.environment, NEXT_RELEASE.environment]
    facts = msgspec.structs.replace(facts, manifest=manifest, environments=both)
    found = plan_rollback(cluster, host, facts)
    assert operations(found)[0] == "start-daemon"
    assert found.steps[-1].arguments["environment"] == RELEASE.environment


def test_a_rollback_ends_an_upgrade_that_failed(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, PLAIN)
    (host,) = cluster.select(["n1"])
    facts = msgspec.structs.replace(deployed(cluster, "n1"), daemons={})
    found = plan_rollback(cluster, host, facts)
    assert operations(found) == ["start-daemon", "wait-connected", "wait-node"]


def removal(facts: HostFacts, cluster: Cluster, **more: Any) -> Plan:
    (host,) = cluster.select(["n1"])
    arguments: dict[str, Any] = {
        "nodes": {},
        "removed": ["n1"],
        "end_jobs": False,
        "with_server": True,
        **more,
    }
    return plan_removal(cluster, host, facts, **arguments)


def test_a_removal_stops_daemons_first_and_tells_the_server(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, PLAIN)
    facts = deployed(cluster, "n1")
    words = operations(removal(facts, cluster))
    assert words == ["stop-daemon", "run-command", "remove-all"]
    # An earlier removal may have failed after it removed the environments.
    half = msgspec.structs.replace(facts, environments=[], daemons={})
    assert operations(removal(half, cluster)) == ["remove-all"]
    found = removal(facts, cluster, with_server=False)
    assert [step.arguments["words"][1:3] for step in found.steps if step.on_server] == (
        [["cluster", "revoke"], ["node", "remove"]]
    )


def test_a_host_with_jobs_is_removed_only_if_that_is_wanted(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, PLAIN)
    facts = deployed(cluster, "n1")
    nodes = {"n1": NodeUse("UP", 3), "n2": NodeUse("UP", 0)}
    with pytest.raises(PlanError, match="--end-jobs"):
        removal(facts, cluster, nodes=nodes)
    assert removal(facts, cluster, nodes=nodes, end_jobs=True).steps
    assert removal(facts, cluster, nodes={"n2": NodeUse("UP", 3)}).steps


def test_a_host_with_jobs_is_kept_also_if_the_server_does_not_answer(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, PLAIN)
    facts = msgspec.structs.replace(deployed(cluster, "n1"), job_processes=2)
    with pytest.raises(PlanError, match="--end-jobs"):
        removal(facts, cluster)
    assert removal(facts, cluster, end_jobs=True).steps
    assert removal(facts, cluster, nodes={"n1": NodeUse("UP", 0)}).steps


def test_folders_that_the_deployment_did_not_make_are_not_removed(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, f"{PLAIN}\nfolders: {{state: /home/alice, run: /srv/run}}")
    facts = deployed(cluster, "n1")
    assert facts.manifest is not None
    manifest = msgspec.structs.replace(facts.manifest, folders=["/opt/pliant", "/srv/run"])
    found = removal(msgspec.structs.replace(facts, manifest=manifest), cluster)
    assert found.steps[-1].arguments["own"] == ["/srv/run"]
    assert "/home/alice" in "".join(found.notes)


def test_the_server_is_not_removed_before_its_nodes_and_their_jobs(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, PLAIN)
    (head,) = cluster.select(["head"])
    facts = deployed(cluster, "head")

    def plan_head(node: NodeUse, *removed: str, end_jobs: bool = False) -> Plan:
        return plan_removal(
            cluster,
            head,
            facts,
            nodes={"n1": node},
            removed=["head", *removed],
            end_jobs=end_jobs,
            with_server=True,
        )

    with pytest.raises(PlanError, match="n1 would lose"):
        plan_head(NodeUse("UP", 0))
    with pytest.raises(PlanError, match="--end-jobs"):
        plan_head(NodeUse("UP", 2), "n1")
    assert plan_head(NodeUse("UP", 2), "n1", end_jobs=True).steps
    assert plan_head(NodeUse("LOST", 0)).steps


def test_a_host_of_another_cluster_is_not_removed(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, PLAIN)
    assert removal(bare_facts(cluster, "n1"), cluster).steps == ()
    other = bare_facts(cluster, "n1", manifest=Manifest(cluster="red"))
    with pytest.raises(PlanError, match="red"):
        removal(other, cluster)
