"""Operations on a host over a real sshd, and interpreters that cannot carry them out."""

from __future__ import annotations

import dataclasses
import getpass
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.client.ssh.session import HostError
from pliant.deploy.planning.cluster import Folders, Host, Role
from pliant.deploy.rollout.agent_session import AgentSession
from sshkit import SshDaemon, missing_programs

pytest.importorskip("paramiko", reason="needs paramiko (extra deploy)")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(missing_programs()), reason=f"{missing_programs()} is not installed"),
]


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshDaemon]:
    daemon = SshDaemon(tmp_path_factory.mktemp("sshd") / "sshd")
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def host(sshd: SshDaemon) -> Host:
    return Host(
        name="n1",
        roles=frozenset([Role.NODE]),
        address="127.0.0.1",
        port=sshd.port,
        user=getpass.getuser(),
        key=str(sshd.key),
        jump="",
        sudo=False,
        python=sys.executable,
        interface="",
        slots=None,
        folders=Folders(),
    )


def failure(host: Host, sshd: SshDaemon) -> HostError:
    session = AgentSession(host, str(sshd.known_hosts))
    session.connect()
    try:
        with pytest.raises(HostError) as caught:
            session.call("find-marker", {"shared": [], "marker": "m"})
    finally:
        session.close()
    assert caught.value.remedy
    return caught.value


def test_several_operations_use_one_connection(sshd: SshDaemon, host: Host, tmp_path: Path) -> None:
    session = AgentSession(host, str(sshd.known_hosts))
    session.connect()
    try:
        arguments = {"shared": [str(tmp_path)], "marker": "m"}
        for operation in ("make-marker", "find-marker", "remove-marker"):
            assert not session.call(operation, arguments).get("missing")
    finally:
        session.close()
    with pytest.raises(HostError):
        session.call("find-marker", arguments)


def test_a_host_behind_a_jump_host(sshd: SshDaemon, host: Host, tmp_path: Path) -> None:
    behind = dataclasses.replace(host, jump=f"127.0.0.1:{sshd.port}")
    session = AgentSession(behind, str(sshd.known_hosts))
    session.connect()
    try:
        arguments = {"shared": [str(tmp_path)], "marker": "m"}
        assert session.call("find-marker", arguments)["missing"]
    finally:
        session.close()


def test_an_error_of_the_agent_has_its_remedy(sshd: SshDaemon, host: Host) -> None:
    session = AgentSession(host, str(sshd.known_hosts))
    session.connect()
    try:
        with pytest.raises(HostError) as caught:
            session.call("make-marker", {"shared": ["/nowhere"], "marker": "m"}, step="shared")
    finally:
        session.close()
    assert (caught.value.host, caught.value.step) == ("n1", "shared")
    assert "/nowhere" in caught.value.cause
    assert caught.value.remedy


def test_an_interpreter_that_is_not_there(sshd: SshDaemon, host: Host) -> None:
    other = dataclasses.replace(host, python="/nowhere/python3")
    assert failure(other, sshd).step == "python"


def test_an_interpreter_that_is_too_old(sshd: SshDaemon, host: Host, tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    # The agent is the last argument: `-I -c CODE`.
    code = "import sys; sys.version_info = (3, 9, 2); exec(sys.argv[1])"
    old.write_text(f"#!/bin/sh\nexec {sys.executable} -I -c '{code}' \"$3\"\n")
    old.chmod(0o755)
    assert "3.9" in failure(dataclasses.replace(host, python=str(old)), sshd).cause


def test_an_interpreter_that_does_not_start(sshd: SshDaemon, host: Host, tmp_path: Path) -> None:
    broken = tmp_path / "broken-python"
    broken.write_text("#!/bin/sh\necho no library >&2\nexit 9\n")
    broken.chmod(0o755)
    assert "no library" in failure(dataclasses.replace(host, python=str(broken)), sshd).cause


def test_an_output_that_is_no_answer(sshd: SshDaemon, host: Host, tmp_path: Path) -> None:
    other = tmp_path / "other-program"
    other.write_text("#!/bin/sh\necho 5\n")
    other.chmod(0o755)
    assert failure(dataclasses.replace(host, python=str(other)), sshd).cause == "5"
