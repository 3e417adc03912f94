"""Hosts behind jump hosts: connections through real sshds, and errors that name the jump host."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.client.client_errors import UsageError
from pliant.client.ssh.session import HostError, connect
from pliant.client.ssh.target import SshTarget, find_jumps, parse_jumps, parse_target
from sshkit import SshDaemon, make_key, missing_programs

needs_sshd = pytest.mark.skipif(
    bool(missing_programs()), reason=f"{missing_programs()} is not installed"
)


class Chain:
    """Two jump hosts and the host behind them, which accept the same key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outer, self.inner, self.host = (
            SshDaemon(folder / name) for name in ("outer", "inner", "host")
        )
        self.daemons = (self.outer, self.inner, self.host)
        self.key = make_key(folder / "key")
        for daemon in self.daemons:
            shutil.copy(f"{self.key}.pub", daemon.folder / "authorized_keys")
            daemon.start()

    def known_hosts(self, *daemons: SshDaemon) -> str:
        """Return a file with the keys of hosts."""
        file = self.folder / "known_hosts"
        file.write_text("".join(each.known_hosts.read_text() for each in daemons))
        return str(file)

    def target(self) -> SshTarget:
        """Return the host, with both jump hosts before it."""
        return SshTarget(
            "node",
            "127.0.0.1",
            port=self.host.port,
            key_file=str(self.key),
            known_hosts=self.known_hosts(*self.daemons),
            jumps=f"{name_of(self.outer)},{name_of(self.inner)}",
        )


def name_of(daemon: SshDaemon) -> str:
    return f"127.0.0.1:{daemon.port}"


def logins(daemon: SshDaemon) -> int:
    return (daemon.folder / "log").read_text().count("Accepted publickey")


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    made = Chain(tmp_path_factory.mktemp("jumps"))
    try:
        yield made
    finally:
        for daemon in made.daemons:
            daemon.stop()


def failure(target: SshTarget, timeout_s: float = 60) -> HostError:
    with pytest.raises(HostError) as caught:
        connect(target, timeout_s=timeout_s)
    return caught.value


@needs_sshd
@pytest.mark.cluster
class TestJumps:
    def test_a_host_behind_two_jump_hosts(self, chain: Chain) -> None:
        before = [logins(daemon) for daemon in chain.daemons]
        data = bytes(range(256)) * (1 << 13)  # 2 MiB, as much as a window of SSH
        with connect(chain.target(), timeout_s=60) as session:
            assert session.run(["cat"], step="copy", stdin=data).stdout == data
            assert session.route() == ("127.0.0.1", "127.0.0.1")
        assert [logins(daemon) for daemon in chain.daemons] == [count + 1 for count in before]

    def test_the_configuration_of_ssh_names_them(
        self, chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / ".ssh").mkdir()
        (tmp_path / ".ssh/config").write_text(
            f"Host gate\n Port {chain.outer.port}\n"
            f"Host inner\n Port {chain.inner.port}\n ProxyJump gate\n"
            f"Host node\n Port {chain.host.port}\n ProxyJump inner\n"
            f"Host *\n HostName 127.0.0.1\n IdentityFile {chain.key}\n"
            f" UserKnownHostsFile {chain.known_hosts(*chain.daemons)}\n"
        )
        monkeypatch.setenv("HOME", str(tmp_path))
        before = [logins(daemon) for daemon in chain.daemons]
        with connect(parse_target("node"), timeout_s=60) as session:
            assert session.check(["echo", "here"], step="try") == b"here\n"
        assert [logins(daemon) for daemon in chain.daemons] == [count + 1 for count in before]
        direct = replace(parse_target("node"), jumps="none")
        connect(direct, timeout_s=60).close()
        assert logins(chain.outer) == before[0] + 1

    def test_an_unknown_key_of_a_jump_host(self, chain: Chain) -> None:
        target = chain.target()
        chain.known_hosts(chain.outer, chain.host)
        error = failure(target)
        assert str(error).startswith(f"node: connect: jump host {name_of(chain.inner)}: ")
        assert "not known" in error.cause
        assert f"-J {target.user}" in error.remedy
        assert f"127.0.0.1:{chain.outer.port} -p {chain.inner.port} " in error.remedy

    def test_an_unknown_key_of_the_host_behind_them(self, chain: Chain) -> None:
        target = chain.target()
        chain.known_hosts(chain.outer, chain.inner)
        error = failure(target)
        assert error.cause == "its host key is not known"
        assert f"127.0.0.1:{chain.inner.port} -p {chain.host.port} " in error.remedy

    def test_a_changed_key_of_a_jump_host(self, chain: Chain) -> None:
        target = chain.target()
        own = chain.outer.known_hosts.read_text().split()[0]
        other = chain.inner.known_hosts.read_text().split(maxsplit=1)[1]
        (chain.folder / "known_hosts").write_text(f"{own} {other}")
        error = failure(target)
        assert f"jump host {name_of(chain.outer)}: the host key has changed" in error.cause

    def test_a_jump_host_that_does_not_accept_the_key(self, chain: Chain, tmp_path: Path) -> None:
        error = failure(replace(chain.target(), key_file=str(make_key(tmp_path / "other"))))
        assert (error.host, error.step) == ("node", "log in")
        assert error.cause.startswith(f"jump host {name_of(chain.outer)}: ")

    def test_nothing_listens_behind_the_jump_hosts(self, chain: Chain, tmp_path: Path) -> None:
        absent = SshDaemon(tmp_path / "absent")  # is never started
        error = failure(replace(chain.target(), port=absent.port))
        assert (error.host, error.step) == ("node", "connect")
        assert f"the jump host {name_of(chain.inner)} cannot connect to " in error.cause
        jumps = f"{name_of(chain.outer)},{name_of(absent)}"
        error = failure(replace(chain.target(), jumps=jumps))
        assert error.cause.startswith(f"jump host {name_of(absent)}: the jump host ")
        error = failure(replace(chain.target(), jumps=name_of(absent)))
        assert error.cause.startswith(f"jump host {name_of(absent)}: ")
        assert "nothing listens" in error.cause

    def test_a_jump_host_that_forwards_nothing(self, chain: Chain, tmp_path: Path) -> None:
        closed = SshDaemon(tmp_path / "closed")
        shutil.copy(f"{chain.key}.pub", closed.folder / "authorized_keys")
        closed.start("AllowTcpForwarding no")
        try:
            target = replace(chain.target(), jumps=name_of(closed))
            chain.known_hosts(closed, chain.host)
            error = failure(target)
        finally:
            closed.stop()
        assert f"the jump host {name_of(closed)} does not allow connections" in error.cause
        assert "AllowTcpForwarding" in error.remedy


def test_jump_hosts_as_users_write_them() -> None:
    first, second = parse_jumps("alice@gate:2222, ssh://inner/")
    assert (first.host, first.user, first.port) == ("gate", "alice", 2222)
    assert (second.host, second.name) == ("inner", "inner")
    assert parse_jumps("none") == parse_jumps("") == []
    for text in ("a,,b", "a b", "-oProxyCommand=x"):
        with pytest.raises(UsageError, match=r"USER@"):
            parse_jumps(text)


def test_keys_of_jump_hosts(tmp_path: Path) -> None:
    config, own = tmp_path / "config", tmp_path / "own"
    own.touch()
    config.write_text(f"Host inner\n ProxyJump gate:7\n User bob\n IdentityFile {own}\n")
    target = SshTarget("n1", "n1", key_file="/key", known_hosts="/known", jumps="inner,last")
    found = find_jumps(target, str(config))
    assert [each.name for each in found] == ["gate:7", "inner", "last"]
    assert [each.key_file for each in found] == ["/key", str(own), "/key"]
    assert [each.port for each in found] == [7, 22, 22]
    assert found[1].user == "bob"
    assert {each.known_hosts for each in found} == {"/known"}


def test_a_jump_host_behind_itself(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n ProxyJump gate\n")
    with pytest.raises(UsageError, match=r"more than 8 jump hosts"):
        find_jumps(parse_target("n1"), str(config))
