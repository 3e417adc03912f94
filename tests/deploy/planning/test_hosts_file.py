"""hosts.yaml: what it means, and that each mistake is named with its line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploykit.facts import HOSTS, make_cluster
from pliant.client.client_errors import UsageError
from pliant.deploy.planning.cluster import Role
from pliant.deploy.planning.hosts_file import HostsFileError, read_hosts_file


def test_ranges_become_hosts_with_the_defaults_of_the_file(tmp_path: Path) -> None:
    more = (
        "user: admin\nport: 2222\nkey: id\nslots: 8\nhelper: false\njump: gate\n"
        "folders: {state: '/s/{name}'}"
    )
    text = HOSTS.format(more=more)
    text += "  n[08-09]: {port: 23, jump: 'a@b:7,c', address: '{name}.site'}\n"
    (tmp_path / "hosts.yaml").write_text(text)
    cluster = read_hosts_file(str(tmp_path / "hosts.yaml"))
    assert [host.name for host in cluster.hosts] == ["head", "n1", "n2", "n08", "n09"]
    head, n1, *_, n09 = cluster.hosts
    assert [set(head.roles), set(n1.roles)] == [{Role.SERVER}, {Role.NODE}]
    assert (n1.user, n1.port, n1.slots, n1.key) == ("admin", 2222, 4, str(tmp_path / "id"))
    assert (n09.port, n09.address, n09.slots) == (23, "n09.site", 8)
    assert (n1.jump, n09.jump) == ("gate", "a@b:7,c")
    assert (n1.folders.state, n1.folders.prefix) == ("/s/n1", "/opt/pliant")
    assert cluster.server_address == "10.0.0.1"


def test_a_server_may_be_a_node_as_well(tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text(
        "cluster: a\nlisten: a:7000\nhosts:\n  a: {role: [server, node]}\n"
    )
    cluster = read_hosts_file(str(tmp_path / "hosts.yaml"))
    assert cluster.server.roles == {Role.SERVER, Role.NODE}


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("cluster: a\nlisten: a:1\n", 0, "hosts"),
        ("cluster: a\nlisten: a:1\nhosts: {a: {role: server}}\nprot: 2\n", 4, "prot"),
        ("cluster: a\nlisten: nowhere\nhosts: {a: {role: server}}\n", 2, "listen"),
        ("cluster: a b\nlisten: a:1\nhosts: {a: {role: server}}\n", 1, "cluster"),
        ("cluster: a\nlisten: a:1\nhosts:\n  n1:\n", 3, "hosts"),
        ("cluster: a\nlisten: a:1\nhosts:\n  n1: {role: server}\n  n2: {rol: x}\n", 5, "rol"),
        ("cluster: a\nlisten: a:1\nhosts:\n  n1: {role: x}\n", 4, "hosts.n1.role"),
        ("cluster: a\nlisten: a:1\nhosts:\n  n1:\n    port: x\n", 5, "hosts.n1.port"),
        ("cluster: a\nlisten: a:1\nhosts:\n  n1:\n    port: 99999\n", 5, "hosts.n1.port"),
        ("cluster: a\nlisten: a:1\nhosts:\n  n1:\n    slots: 0\n", 5, "hosts.n1.slots"),
        ("cluster: a\nlisten: a:1\nhosts:\n  n1:\n    jump: a,,b\n", 5, "hosts.n1.jump"),
        ("cluster: a\nlisten: a:1\njump: a b\nhosts: {a: {role: server}}\n", 3, "jump"),
        ("cluster: a\nlisten: a:1\nhosts:\n  n[2-1]: {}\n", 4, "hosts.n[2-1]"),
        ("cluster: a\nlisten: a:1\nhosts:\n  n[1-2]: {address: x}\n", 4, "address"),
        ("cluster: a\nlisten: a:1\nhosts:\n  n[1-2]:\n  n2: {}\n", 5, "hosts.n2"),
        ("cluster: a\nlisten: a:1\nfolders:\n  state: x\nhosts: {a: {}}\n", 4, "folders.state"),
        ("cluster: a\nlisten: a:1\nfolders:\n  run: /tmp\nhosts: {a: {}}\n", 4, "folders.run"),
        ("cluster: a\nlisten: a:1\nfolders:\n  config: /a/b\nhosts: {a: {}}\n", 4, "config"),
        ("cluster: a\nlisten: 0.0.0.0:1\nhosts: {a: {role: server}}\n", 2, "listen"),
        ("cluster: a\nlisten: a:1\nserver:\n  state_dir: /x\nhosts: {}\n", 4, "server.state_dir"),
    ],
)
def test_a_mistake_is_named_with_line_and_key(
    text: str, line: int, key: str, tmp_path: Path
) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(text)
    with pytest.raises(HostsFileError) as caught:
        read_hosts_file(str(path))
    message = str(caught.value)
    assert message.startswith(str(path))
    assert key in message
    assert (f"line {line}:" in message) == (line > 0)


@pytest.mark.parametrize("text", ["", "[", "a: 1\na: 2\n", "- x\n"])
def test_a_file_that_is_no_mapping_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text(text)
    with pytest.raises(HostsFileError):
        read_hosts_file(str(tmp_path / "hosts.yaml"))
    with pytest.raises(HostsFileError):
        read_hosts_file(str(tmp_path / "missing.yaml"))


def test_a_limit_selects_hosts_in_the_order_of_the_file(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    assert [host.name for host in cluster.select(["n2", "head"])] == ["head", "n2"]
    assert len(cluster.select([])) == 3
    with pytest.raises(UsageError, match="n7"):
        cluster.select(["n1", "n7"])
