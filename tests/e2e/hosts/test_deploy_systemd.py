"""`pliant deploy hosts.yaml` on a host with systemd and the root helper."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from deploykit.wheels import write_checkout_wheel
from sshkit import missing_programs
from systemdkit.container import Container, booted
from testkit import wait_until

pytest.importorskip("paramiko", reason="needs paramiko (extra deploy)")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing_programs()), reason=f"{missing_programs()} is not installed"),
    pytest.mark.skipif(shutil.which("ssh-keyscan") is None, reason="needs ssh-keyscan"),
]

HOSTS = """\
cluster: blue
listen: 127.0.0.1:7000
wheelhouse: wheels
key: key
known_hosts: known
port: 2222
python: {python}
folders: {{prefix: /srv/pliant}}
hosts:
  head: {{role: [server, node], address: 127.0.0.1, slots: 2, interface: lo}}
"""
UNITS = {"server": "pliant-server", "node": "pliant-nodectl", "helper": "pliant-helper"}


@pytest.fixture
def host() -> Iterator[Container]:
    with booted() as container:
        folder = container.root / "srv/site"
        folder.mkdir(parents=True)
        write_checkout_wheel(folder / "wheels")
        container.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/srv/site/key")
        container.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/srv/site/host_key")
        config = (
            "Port 2222\nListenAddress 127.0.0.1\nHostKey /srv/site/host_key\nStrictModes no\n"
            "AuthorizedKeysFile /srv/site/key.pub\nPermitRootLogin yes\nUsePAM no\nPidFile none\n"
        )
        container.write("/srv/site/sshd_config", config)
        # For each command of sshd, bash would read this copy of the host's file, which may be slow.
        container.run("sh", "-c", "rm -f ~root/.bashrc")
        container.run("mkdir", "-p", "/run/sshd")
        container.run("/usr/sbin/sshd", "-f", "/srv/site/sshd_config")
        scan = container.run("ssh-keyscan", "-p", "2222", "127.0.0.1", check=False)
        container.write("/srv/site/known", f"{scan}\n")
        python = container.run("readlink", "/opt/pliant/bin/python")
        container.write("/srv/site/hosts.yaml", HOSTS.format(python=python))
        # What the container has for other tests must not be taken for a deployment.
        assert not container.run("ls", "/etc/pliant", check=False)
        yield container


def deploy(container: Container, *options: str) -> dict[str, Any]:
    words = ["pliant", "deploy", "/srv/site/hosts.yaml", "--json", *options]
    (record,) = json.loads(container.run(*words, check=False, timeout_s=300))
    return dict(record)


def own_files(host: Container) -> str:
    """Return the paths with the name of Pliant where a deployment may leave some."""
    return host.run(
        *("find", "/etc", "/srv", "/var/lib", "/run", "-path", "/srv/site", "-prune"),
        *("-o", "-name", "*pliant*", "-print"),
    )


def test_units_of_a_release_are_deployed_upgraded_and_removed(host: Container) -> None:
    before = own_files(host)
    record = deploy(host)
    assert (record["outcome"], record["problems"]) == ("changed", []), record
    first = host.run("readlink", "/srv/pliant/current")
    for unit in UNITS.values():
        assert host.run("systemctl", "is-active", unit) == "active"
        assert host.run("systemctl", "is-enabled", unit) == "enabled"
        assert first in host.show(unit, "ExecStart")
    host.run("useradd", "--create-home", "ann")
    # The account of a job is that of its user.
    words = ("/srv/pliant/current/bin/jobsub", "--wait", "-o", "/home/ann/out", "--wrap", "id -un")
    host.run("runuser", "-u", "ann", "--", "env", "--chdir=/home/ann", *words)
    assert (host.root / "home/ann/out").read_text().strip() == "ann"

    assert deploy(host)["outcome"] == "unchanged"

    write_checkout_wheel(host.root / "srv/site/wheels", "2.0")
    (host.root / "srv/site/wheels/pliant-1.0-py3-none-any.whl").unlink()
    record = deploy(host, "--upgrade")
    assert (record["outcome"], record["problems"]) == ("changed", []), record
    second = host.run("readlink", "/srv/pliant/current")
    assert second != first
    record = deploy(host, "--check")
    assert record["daemons"] == dict.fromkeys(UNITS, second)

    record = deploy(host, "--remove", "--yes")
    assert (record["outcome"], record["problems"]) == ("changed", []), record
    after = own_files(host)
    assert after == before
    assert not host.run("getent", "passwd", "pliant", check=False)
    wait_until(lambda: not host.run("pgrep", "-f", "/srv/pliant", check=False), what="no processes")
