from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.client.client_errors import UsageError
from pliant.client.ssh.parallel import on_hosts
from pliant.client.ssh.session import HostError, SshSession, connect
from pliant.client.ssh.target import SshTarget, complete_target, parse_target
from sshkit import SshDaemon, make_key, missing_programs

needs_sshd = pytest.mark.skipif(
    bool(missing_programs()), reason=f"{missing_programs()} is not installed"
)


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[SshDaemon]:
    daemon = SshDaemon(tmp_path / "sshd")
    daemon.start()
    yield daemon
    daemon.stop()


def target(sshd: SshDaemon, **changed: object) -> SshTarget:
    settings = {"key_file": str(sshd.key), "known_hosts": str(sshd.known_hosts), **changed}
    return SshTarget("node", "127.0.0.1", port=sshd.port, **settings)  # type: ignore[arg-type]


def failure(where: SshTarget) -> HostError:
    with pytest.raises(HostError) as caught:
        connect(where, timeout_s=20)
    return caught.value


@pytest.fixture
def session(sshd: SshDaemon) -> Iterator[SshSession]:
    with connect(target(sshd)) as opened:
        yield opened


@needs_sshd
@pytest.mark.cluster
class TestSession:
    def test_words_are_not_interpreted_by_the_shell(self, session: SshSession) -> None:
        done = session.run(["echo", "$HOME; a 'b' \"c\""], step="try")
        assert (done.code, done.stdout) == (0, b"$HOME; a 'b' \"c\"\n")

    def test_large_outputs_and_inputs_pass_at_once(self, session: SshSession) -> None:
        data = bytes(range(256)) * (1 << 14)  # more than a window of SSH
        both = session.run(["sh", "-c", "cat; head -c 3000000 /dev/zero >&2"], step="x", stdin=data)
        assert both.stdout == data
        assert len(both.stderr) == 3000000
        copy = io.BytesIO()
        session.run(["cat"], step="copy", stdin=io.BytesIO(data), stdout=copy)
        assert copy.getvalue() == data

    def test_a_command_that_reads_nothing(self, session: SshSession) -> None:
        done = session.run(["sh", "-c", "exit 3"], step="try", stdin=bytes(1 << 23))
        assert done.code == 3

    def test_check_names_host_step_cause_and_remedy(self, session: SshSession) -> None:
        with pytest.raises(HostError) as caught:
            session.check(["sh", "-c", "echo no room >&2; exit 4"], step="unpack", remedy="clean")
        error = caught.value
        assert (error.host, error.step, error.remedy) == ("node", "unpack", "clean")
        assert "ended with 4: no room" in error.cause

    def test_a_command_that_does_not_end(self, session: SshSession) -> None:
        with pytest.raises(HostError, match=r"node: wait: no end within 0.2 s"):
            session.run(["sleep", "60"], step="wait", timeout_s=0.2)

    def test_a_route_names_both_ends(self, session: SshSession) -> None:
        assert session.route() == ("127.0.0.1", "127.0.0.1")


@needs_sshd
@pytest.mark.cluster
class TestRefusals:
    def test_wrong_key(self, sshd: SshDaemon, tmp_path: Path) -> None:
        error = failure(target(sshd, key_file=str(make_key(tmp_path / "other"))))
        assert error.step == "log in"
        assert "ssh-copy-id" in error.remedy

    def test_missing_key(self, sshd: SshDaemon) -> None:
        assert "no key file" in failure(target(sshd, key_file="/nowhere")).cause

    def test_unknown_host_key(self, sshd: SshDaemon) -> None:
        sshd.known_hosts.write_text("")
        error = failure(target(sshd))
        assert "not known" in error.cause
        assert f"ssh -p {sshd.port} " in error.remedy

    def test_changed_host_key(self, sshd: SshDaemon) -> None:
        sshd.change_host_key()
        error = failure(target(sshd))
        assert "host key has changed" in error.cause
        assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}'" in error.remedy

    def test_nothing_listens(self, sshd: SshDaemon) -> None:
        sshd.stop()
        assert failure(target(sshd)).step == "connect"


def test_a_port_that_does_not_speak_ssh(tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        key = SshTarget("node", "127.0.0.1", port=port, known_hosts=str(known))
        with pytest.raises(HostError) as caught:
            connect(key, timeout_s=0.5)
    assert caught.value.step == "connect"


def test_a_name_that_does_not_exist(tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("")
    with pytest.raises(HostError, match=r"there is no host"):
        connect(SshTarget("x", "no-such-host.invalid", known_hosts=str(known)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n1", ("n1", "", 0)),
        ("alice@n1.site:2222", ("n1.site", "alice", 2222)),
        ("[fe80::1]:22", ("fe80::1", "", 22)),
    ],
)
def test_targets_as_users_write_them(text: str, expected: tuple[str, str, int]) -> None:
    found = parse_target(text)
    assert (found.host, found.user, found.port) == expected


@pytest.mark.parametrize("text", ["", "-oProxyCommand=x", "n1:99999", "a b", "@n1", "n1:"])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(UsageError, match=r"USER@"):
        parse_target(text)


def test_fields_come_from_the_configuration_of_ssh(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host n*\n HostName %h.site\n Port 2200\n User bob\n IdentityFile {tmp_path}/config\n"
        " UserKnownHostsFile /a /b\n"
    )
    found = complete_target(parse_target("n1"), str(config))
    assert found == SshTarget("n1", "n1.site", "bob", 2200, str(config), "/a")
    given = complete_target(parse_target("eve@n1:7", known_hosts="/k"), str(config))
    assert given == SshTarget("n1", "n1.site", "eve", 7, str(config), "/k")
    assert complete_target(parse_target("n1"), str(tmp_path / "none")).port == 22


def test_a_host_that_fails_does_not_stop_the_others() -> None:
    def work(number: int) -> int:
        if number == 2:
            raise HostError("n2", "think", "too hard", "rest")
        return number * number

    seen: list[str] = []
    hosts = {f"n{number}": number for number in range(1, 5)}
    results, errors = on_hosts(hosts, work, done=lambda name, _: seen.append(name))
    assert results == {"n1": 1, "n3": 9, "n4": 16}
    assert [str(error) for error in errors] == ["n2: think: too hard; rest"]
    assert sorted(seen) == list(hosts)
    assert on_hosts({}, work) == ({}, [])
