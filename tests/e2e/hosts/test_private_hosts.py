"""A user's own cluster on hosts that are reached over SSH: `pliant up --hosts`.

Here the hosts are names for one sshd. Their nodes have folders of their own, as on other hosts.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from clusterkit.cluster import PATIENCE_S, PLIANT, Cluster
from clusterkit.counter import Counter
from pliant.client.api import Client
from pliant.client.cluster import process_table
from pliant.client.connection import Connection
from sshkit import SshDaemon, make_key, missing_programs
from testkit.processes import run_python
from testkit.waiting import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.mpi,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing_programs()), reason=f"{missing_programs()} is not installed"),
]


class PrivateHosts(Cluster):
    """A cluster on some hosts."""

    def __init__(self, base: Path, sshd: SshDaemon, hosts: str) -> None:
        super().__init__(base, 3, 2, "fcfs")
        self.nodes = base / "n"  # short: sockets are below it
        self.nodes.mkdir()
        file = base / "hosts"
        file.write_text(hosts.replace("SSHD", f"127.0.0.1:{sshd.port}"))
        self.shape = ["--hosts", str(file), "--node-dir", str(self.nodes), "--strategy", "fcfs"]
        self.shape += ["--key", str(sshd.key), "--known-hosts", str(sshd.known_hosts)]

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `pliant` and return how it ended."""
        return subprocess.run(
            [sys.executable, *PLIANT, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S * 2,
        )

    def processes(self) -> list[int]:
        """Return the processes of all nodes, jobs included."""
        return [
            pid
            for pid in psutil.pids()
            if process_table.environment(pid)
            .get("PLIANT_STATE_DIR", process_table.environment(pid).get("PLIANT_TOKEN_FILE", ""))
            .startswith(str(self.nodes))
            and process_table.alive(pid)
        ]

    def connected(self) -> set[str]:
        """Return the nodes whose controllers are connected."""
        with Connection(str(self.run)) as link:
            return {each["name"] for each in link.request("nodes")["nodes"] if each["connected"]}

    def _is_rank(self, env: dict[str, str], number: int) -> bool:
        own = env.get("PLIANT_TOKEN_FILE", "").startswith(f"{self.nodes}/")
        return own and env.get("PLIANT_JOB") == str(number) and "PLIANT_PROCESSOR" in env


THREE = "SSHD name=n1 slots=2\nSSHD name=n2 slots=2\nSSHD name=n3 slots=2\n"


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[SshDaemon]:
    daemon = SshDaemon(tmp_path / "sshd")
    daemon.start()
    yield daemon
    daemon.stop()


@pytest.fixture
def hosts(state_dir: Path, sshd: SshDaemon) -> Iterator[PrivateHosts]:
    cluster = PrivateHosts(state_dir.parent, sshd, THREE)
    yield cluster
    cluster.client.close()
    sshd.trust()
    process_table.terminate(cluster.processes(), 2.0)
    run_python(*PLIANT, "down", timeout=PATIENCE_S)


def test_a_job_is_resized_across_hosts_and_down_leaves_nothing(
    hosts: PrivateHosts, tmp_path: Path
) -> None:
    run_python(*PLIANT, "up", "--detach", *hosts.shape, timeout=PATIENCE_S * 2)
    hosts.client = Client(str(hosts.run))
    job = Counter(hosts, tmp_path / "counter")
    hosts.wait_malleable(job.id)
    hosts.resize(job.id, 6)
    assert {rank.node for rank in hosts.ranks(job.id)} == {"n1", "n2", "n3"}
    hosts.resize(job.id, 3)

    # A second `up` starts what is missing, and jobs go on.
    controller = next(
        pid for pid in hosts.processes() if process_table.option(pid, "--name") == "n2"
    )
    process_table.terminate([controller], 0.0)
    wait_until(lambda: hosts.connected() == {"n1", "n3"}, what="n2 to be missed")
    assert hosts.call("up", "--detach").returncode == 0
    assert hosts.connected() == {"n1", "n2", "n3"}
    hosts.resize(job.id, 5)

    done = hosts.call("down")
    assert (done.returncode, done.stdout) == (0, "down: all is gone\n"), done.stderr
    assert hosts.processes() == []
    assert list(hosts.nodes.iterdir()) == []
    assert hosts.call("down").stdout == "down: nothing was up\n"


def test_a_job_survives_while_the_cluster_is_down(hosts: PrivateHosts, tmp_path: Path) -> None:
    run_python(*PLIANT, "up", "--detach", *hosts.shape, timeout=PATIENCE_S * 2)
    hosts.client = Client(str(hosts.run))
    job = Counter(hosts, tmp_path / "counter")
    hosts.wait_malleable(job.id)
    kept = hosts.call("down", "--keep-jobs")
    assert (kept.returncode, "go on" in kept.stdout) == (0, True), kept.stdout
    hosts.client.close()
    assert len(hosts.ranks(job.id)) == 2
    assert hosts.call("up", "--detach").returncode == 0
    hosts.client = Client(str(hosts.run))
    hosts.wait_malleable(job.id)
    hosts.resize(job.id, 4)
    job.finish()


def test_a_job_survives_a_server_that_is_killed(hosts: PrivateHosts, tmp_path: Path) -> None:
    with open(tmp_path / "up", "wb") as log:
        up = subprocess.Popen(
            [sys.executable, *PLIANT, "up", *hosts.shape], stdout=log, stderr=subprocess.STDOUT
        )
    wait_until(
        lambda: "up: 3 nodes" in (tmp_path / "up").read_text(), timeout=PATIENCE_S, what="the nodes"
    )
    hosts.client = Client(str(hosts.run))
    job = Counter(hosts, tmp_path / "counter")
    hosts.wait_malleable(job.id)
    hosts.kill("server")
    assert up.wait(timeout=PATIENCE_S) == 1
    assert "jobs on other hosts go on" in (tmp_path / "up").read_text()
    assert len(hosts.ranks(job.id)) == 2
    assert hosts.call("up", "--detach").returncode == 0
    hosts.client = Client(str(hosts.run))
    hosts.wait_malleable(job.id)
    hosts.resize(job.id, 4)
    job.finish()


def test_a_host_that_is_missing_is_named_and_the_others_go_on(
    state_dir: Path, sshd: SshDaemon
) -> None:
    text = "SSHD name=n1\n127.0.0.1:1 name=n2\nSSHD name=n3 python=/nowhere/python\n"
    cluster = PrivateHosts(state_dir.parent, sshd, text)
    known = sshd.known_hosts.read_text().split()
    sshd.known_hosts.write_text(
        f"{sshd.known_hosts.read_text()}[127.0.0.1]:1 {' '.join(known[1:])}\n"
    )
    done = cluster.call("up", "--detach", *cluster.shape)
    try:
        assert done.returncode == 0, done.stderr
        assert "warning: n2: connect: " in done.stderr
        assert "warning: n3: python: /nowhere/python" in done.stderr
        assert done.stdout.startswith("up: 1 of 3 nodes on other hosts (n1)")
    finally:
        down = cluster.call("down")
    assert down.stdout == "down: all is gone\n"
    assert cluster.processes() == []


def _nothing_is_left(cluster: PrivateHosts) -> bool:
    return cluster.processes() == [] and not list(cluster.run.glob("*.pid"))


def test_a_wrong_key_starts_nothing(hosts: PrivateHosts, tmp_path: Path) -> None:
    done = hosts.call("up", "--detach", *hosts.shape, "--key", str(make_key(tmp_path / "other")))
    assert done.returncode == 1
    for name in ("n1", "n2", "n3"):
        assert f"{name}: log in: " in done.stderr
    assert _nothing_is_left(hosts)


def test_a_changed_host_key_starts_nothing(hosts: PrivateHosts, sshd: SshDaemon) -> None:
    sshd.change_host_key()
    done = hosts.call("up", "--detach", *hosts.shape)
    assert done.returncode == 1
    assert "host key has changed" in done.stderr
    assert _nothing_is_left(hosts)


def test_a_host_that_is_gone_at_the_end_is_named_and_ended_later(
    hosts: PrivateHosts, sshd: SshDaemon
) -> None:
    assert hosts.call("up", "--detach", *hosts.shape).returncode == 0
    sshd.stop()
    done = hosts.call("down")
    assert done.returncode == 1
    assert "n1: connect: " in done.stderr
    sshd.start()
    assert hosts.call("down").stdout == "down: all is gone\n"
    assert hosts.processes() == []


def test_a_node_that_cannot_reach_the_server_is_explained(hosts: PrivateHosts) -> None:
    done = hosts.call("up", "--detach", *hosts.shape, "--address", "192.0.2.1")
    assert done.returncode == 1
    assert "n1: join: " in done.stderr
    assert "--address" in done.stderr
    assert _nothing_is_left(hosts)
