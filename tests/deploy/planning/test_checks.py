"""Each fact that stops a deployment is a problem with a remedy; a good host has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploykit.facts import RELEASE, bare_facts, make_cluster
from pliant.deploy.planning.checks import MAX_CLOCK_OFFSET_S, Problem, find_problems
from pliant.deploy.planning.facts import Manifest


def problems(folder: Path, name: str = "n1", more: str = "", **changes: Any) -> list[Problem]:
    cluster = make_cluster(folder, more)
    (host,) = cluster.select([name])
    facts = bare_facts(cluster, name, **changes)
    server = facts if name == "head" else bare_facts(cluster, "head", server_roots=["A"])
    return find_problems(cluster, host, facts, server, RELEASE)


@pytest.mark.parametrize("name", ["head", "n1"])
def test_a_bare_host_is_good(name: str, tmp_path: Path) -> None:
    assert problems(tmp_path, name, "users: [alice]\ninterface: eth0") == []


@pytest.mark.parametrize(
    ("check", "more", "changes"),
    [
        ("python", "", {"has_venv": False}),
        ("account", "", {"user": "bob", "is_root": False}),
        ("root helper", "", {"user": "bob", "is_root": False}),
        ("systemd", "service: systemd", {"user": "bob", "is_root": False}),
        ("systemd", "account: bob\nservice: systemd", {}),
        ("systemd", "folders: {state: /srv/state}\nservice: systemd", {}),
        ("accounts", "account: bob", {"is_root": False, "accounts": {"bob": None}}),
        ("accounts", "users: [alice]", {"accounts": {"alice": None, "pliant": (1, 1)}}),
        ("accounts", "users: [alice]", {"accounts": {"alice": (7, 7), "pliant": (1, 1)}}),
        ("interface", "interface: ib0", {}),
        ("interface", "interface: eth1", {}),
        ("network", "", {"route": ""}),
        ("disk space", "", {"free_bytes": {"/opt/pliant": 9 << 20, "/var/lib/pliant": 1 << 40}}),
        ("disk space", "", {"free_bytes": {"/opt/pliant": 9 << 40, "/var/lib/pliant": 9}}),
        ("clock", "", {"clock_offset_s": 2 * MAX_CLOCK_OFFSET_S}),
        ("clock", "", {"clock_offset_s": -2 * MAX_CLOCK_OFFSET_S}),
        ("shared folders", "", {"not_shared": {"/home": "it does not exist"}}),
        ("cluster", "", {"manifest": Manifest(cluster="red")}),
        ("cluster", "", {"node_roots": ["B"]}),
    ],
)
def test_a_problem_is_found(check: str, more: str, changes: dict[str, Any], tmp_path: Path) -> None:
    found = problems(tmp_path, more=more, **changes)
    assert check in {each.check for each in found}
    assert all(each.message and each.remedy for each in found)


def test_an_uncertain_clock_is_no_problem(tmp_path: Path) -> None:
    offset = MAX_CLOCK_OFFSET_S + 5
    assert problems(tmp_path, clock_offset_s=offset, clock_error_s=6.0) == []


def test_the_address_of_the_server_must_be_one_of_its_host(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, "head", interfaces={"eth0": "10.0.0.9"})
    assert found.check == "network"


def test_the_folder_of_checkpoints_must_exist_on_the_host_of_the_server(tmp_path: Path) -> None:
    more = "server: {checkpoints: /shared/checkpoints}"
    (found,) = problems(tmp_path, "head", more)
    assert found.check == "checkpoints"
    assert "1777" in found.remedy
    assert problems(tmp_path, "head", more, folders=["/shared/checkpoints"]) == []
    assert problems(tmp_path, "n1", more) == []


def test_a_full_disk_is_no_problem_if_the_release_is_there(tmp_path: Path) -> None:
    full = {"/opt/pliant": 0, "/var/lib/pliant": 0}
    manifest = Manifest(cluster="blue", environment=RELEASE.environment)
    environments = [RELEASE.environment]
    assert not problems(tmp_path, free_bytes=full, manifest=manifest, environments=environments)


def test_an_ordinary_account_may_deploy_for_itself(tmp_path: Path) -> None:
    more = "account: bob\nhelper: false"
    assert problems(tmp_path, more=more, user="bob", is_root=False) == []
