"""`pliant deploy --upgrade` on three hosts with systemd, while a job runs across them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from clusterkit.cluster import PLIANT
from deploykit.wheels import write_checkout_wheel
from netkit.network import Network, NetworkError
from sshkit import make_key, missing_programs
from systemdkit.container import Container, booted
from testkit import wait_until

pytest.importorskip("paramiko", reason="needs paramiko (extra deploy)")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing_programs()), reason=f"{missing_programs()} is not installed"),
]

NODES = ("n1", "n2")
HOSTS = """\
cluster: blue
listen: {head}:7000
wheelhouse: wheels
key: key
port: 2222
known_hosts: known
python: {python}
folders: {{prefix: /srv/pliant}}
users: [ann]
shared: [/shared]
server: {{strategy: fcfs}}
hosts:
  head: {{role: server, address: {head}}}
  n1: {{slots: 2, address: {n1}}}
  n2: {{slots: 2, address: {n2}}}
"""
#: The containers may have an sshd of their own on port 22.
SSHD = """\
Port 2222
HostKey /shared/site/{name}_key
AuthorizedKeysFile /shared/site/key.pub
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
"""
#: The wheel of the test brings no MPI library.
LIBRARY = f"MPI4PY_LIBMPI={sys.prefix}/lib/libmpi.so.12"
JOB = "/srv/pliant/current/bin/python -m pliant.examples.ft --steps 90000 --pause 0.05"


class Site:
    """Three booted hosts, and the machine of the administrator in the same network."""

    def __init__(self, folder: Path, network: Network, hosts: dict[str, Container]) -> None:
        self.folder, self.hosts, self._network = folder, hosts, network

    def deploy(self, *options: str) -> dict[str, dict[str, Any]]:
        """Run `pliant deploy`, and return the result of each host."""
        words = [sys.executable, *PLIANT, "deploy", "hosts.yaml", "--json", *options]
        done = subprocess.run(
            [*self._network.inside("server"), *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return {record["host"]: record for record in json.loads(done.stdout)}

    def ann(self, *words: str) -> str:
        """Run a command of the user on the host of the server."""
        return self.hosts["head"].run_as(
            "ann",
            *("env", "--chdir=/shared/ann", LIBRARY, f"/srv/pliant/current/bin/{words[0]}"),
            *words[1:],
        )

    def job(self, number: str) -> dict[str, Any]:
        """Return a job as `jobstat --json` shows it."""
        (found,) = json.loads(self.ann("jobstat", "--json", number))
        return dict(found)

    def wait_malleable(self, number: str) -> None:
        """Wait until the job has said that it can change its size."""
        job: dict[str, Any] = {}

        def has_registered() -> bool:
            job.update(self.job(number))
            assert job["end"] is None, (job, self.hosts["n1"].run("cat", job["stdout"]))
            return (job["class"], job["state"]) == ("malleable", "RUNNING")

        wait_until(has_registered, timeout=90.0, every=0.5, what="the job")

    def resize(self, number: str, size: int) -> None:
        """Resize the job; offers may be refused for some seconds after another resize."""

        def has_size() -> bool:
            if self.job(number)["size"] == size:
                return True
            self.hosts["head"].run_as(
                "ann", "/srv/pliant/current/bin/jobctl", "resize", number, str(size), check=False
            )
            return False

        wait_until(has_size, timeout=120.0, every=2.0, what=f"{size} processors")


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Iterator[Site]:
    network = Network(["head", *NODES], "10.77.0")
    try:
        network.up()
    except NetworkError as error:
        pytest.skip(f"a network cannot be made here: {error}")
    folder = tmp_path / "site"
    folder.mkdir()
    tmp_path.chmod(0o755)
    (tmp_path / "ann").mkdir()
    make_key(folder / "key")
    write_checkout_wheel(folder / "wheels")
    with ExitStack() as stack:
        stack.callback(network.down)
        hosts = {}
        for name in ("head", *NODES):
            namespace = f"--network-namespace-path=/run/netns/{network.namespace(name)}"
            options = [namespace, f"--hostname={name}", f"--bind={tmp_path}:/shared"]
            host = hosts[name] = stack.enter_context(booted(options))
            make_key(folder / f"{name}_key")
            (folder / f"{name}_sshd").write_text(SSHD.format(name=name))
            host.run("useradd", "--create-home", "--uid", "5001", "ann")
            # For each command of sshd, bash would read this copy of the host's file.
            host.run("sh", "-c", "rm -f ~root/.bashrc; mkdir -p /run/sshd")
            host.run("/usr/sbin/sshd", "-f", f"/shared/site/{name}_sshd")
            kind, key = (folder / f"{name}_key.pub").read_text().split()[:2]
            with open(folder / "known", "a") as known:
                known.write(f"[{network.address(name)}]:2222 {kind} {key}\n")
        shutil.chown(tmp_path / "ann", 5001, 5001)
        python = hosts["head"].run("readlink", "/opt/pliant/bin/python")
        addresses = {name: network.address(name) for name in hosts}
        (folder / "hosts.yaml").write_text(HOSTS.format(python=python, **addresses))
        yield Site(folder, network, hosts)


def test_a_job_survives_the_upgrade_of_all_units(site: Site) -> None:
    records = site.deploy()
    assert {record["outcome"] for record in records.values()} == {"changed"}, records
    for name in NODES:
        assert site.hosts[name].run("systemctl", "is-active", "pliant-nodectl") == "active"
        assert site.hosts[name].show("pliant-nodectl", "ProtectSystem") == "strict"
    first = site.hosts["n1"].run("readlink", "/srv/pliant/current")
    number = site.ann("jobsub", "-n", "1-4", "--prefer", "2", *JOB.split())
    site.wait_malleable(number)
    site.resize(number, 4)
    assert sorted(site.job(number)["nodes"]) == list(NODES)

    write_checkout_wheel(site.folder / "wheels", "2.0")
    (site.folder / "wheels/pliant-1.0-py3-none-any.whl").unlink()
    begin = time.monotonic()
    records = site.deploy("--upgrade")
    print(f"upgrade: {time.monotonic() - begin:.1f} s")
    assert {record["outcome"] for record in records.values()} == {"changed"}, records
    for name, host in site.hosts.items():
        second = host.run("readlink", "/srv/pliant/current")
        assert second != first
        unit = "pliant-server" if name == "head" else "pliant-nodectl"
        assert second in host.show(unit, "ExecStart")
        assert host.run("systemctl", "is-active", unit) == "active"
    job = site.job(number)
    assert (job["state"], job["run"], job["size"]) == ("RUNNING", 1, 4)
    site.resize(number, 2)
    site.resize(number, 4)  # ranks of the new release join those of the old one

    records = site.deploy("--rollback")
    assert {record["outcome"] for record in records.values()} == {"changed"}, records
    assert site.hosts["n2"].run("readlink", "/srv/pliant/current") == first
    job = site.job(number)
    assert (job["state"], job["run"], job["size"]) == ("RUNNING", 1, 4)
    site.ann("jobdel", number)
