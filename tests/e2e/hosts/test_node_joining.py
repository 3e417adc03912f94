"""Nodes join with the commands that an administrator types; revocation and roll-over follow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterkit.counter import Counter
from pliant.client.api import Client
from pliant.client.client_errors import RequestError
from testkit.waiting import wait_until
from tlskit.cluster import TlsCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


class JoinedCluster(TlsCluster):
    """A cluster whose nodes join with a token, in state folders of their own."""

    def pliant(self, *words: str, at: Path | None = None, code: int = 0) -> str:
        """Run a command on the host of the server, or on that of a node; return its output."""
        state = at or self.state
        run = self.run if at is None else at / "run"
        done = subprocess.run(
            [sys.executable, "-m", "pliant.client.commands.cli", *words],
            env={**os.environ, "PLIANT_STATE_DIR": str(state), "PLIANT_RUN_DIR": str(run)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + (done.stderr if code else "")

    def join(self, name: str, slots: int | None, **more: Any) -> Path:
        """Let a host join with a token."""
        limit = () if slots is None else ("--slots", str(slots))
        token = self.pliant("cluster", "token", "--node", name, *limit).strip()
        assert token.isalnum()
        told = self.pliant("node", "join", token, at=self.folder(name))
        assert f"this host is node {name} of cluster blue" in told
        return self.folder(name) / "node-identity"

    def admitted(self) -> dict[str, str]:
        """Return the states of the admitted nodes by name."""
        found = json.loads(self.pliant("cluster", "nodes", "--json"))
        return {each["name"]: each["state"] for each in found["nodes"]}


@pytest.fixture
def cluster(state_dir: Path) -> Iterator[JoinedCluster]:
    made = JoinedCluster(state_dir.parent, {"n1": 1, "n2": 2})
    try:
        made.up()
        yield made
    finally:
        made.down()


def test_a_node_is_revoked_and_joins_again(cluster: JoinedCluster) -> None:
    assert cluster.admitted() == {"n1": "joined", "n2": "joined"}
    shown = cluster.pliant("node", "show", at=cluster.folder("n1"))
    assert "node n1 of cluster blue" in shown
    assert "slots: 1 at most" in shown
    told = cluster.pliant("cluster", "token", "--node", "n1", code=1)
    assert "pliant cluster revoke n1" in told
    cluster.pliant("cluster", "revoke", "n1")
    wait_until(lambda: cluster.states()["n1"] == "LOST", what="the revocation")
    assert cluster.states()["n2"] == "UP"
    cluster.processes["n1"].wait(60)
    cluster.pliant("node", "leave", at=cluster.folder("n1"))
    cluster.join("n1", 1)
    cluster.start_node("n1", "--slots", "1")
    wait_until(lambda: cluster.states()["n1"] == "UP", what="the node that joined again")


def test_the_root_is_replaced_while_nodes_are_connected(cluster: JoinedCluster) -> None:
    before = cluster.pliant("node", "show", "--json", at=cluster.folder("n1"))
    cluster.pliant("cluster", "renew")
    cluster.pliant("cluster", "roll-over", "start")
    finish_roll_over(cluster)
    assert set(cluster.states().values()) == {"UP"}

    def trusts_the_new_root_only() -> bool:
        found = json.loads(cluster.pliant("node", "show", "--json", at=cluster.folder("n1")))
        return len(found["fingerprints"]) == 1

    wait_until(trusts_the_new_root_only, timeout=120, every=0.5, what="the new bundle of the node")
    after = cluster.pliant("node", "show", "--json", at=cluster.folder("n1"))
    assert json.loads(after)["fingerprints"] != json.loads(before)["fingerprints"]
    # A node that connects anew accepts the server's certificate under the new root.
    cluster.processes["n1"].terminate()
    cluster.processes["n1"].wait(60)
    cluster.start_node("n1", "--slots", "1")
    wait_until(lambda: cluster.log("n1").count("registered") > 1, what="n1 to connect again")
    wait_until(lambda: cluster.states()["n1"] == "UP", what="n1")
    cluster.join("n3", None)
    cluster.start_node("n3")
    wait_until(lambda: cluster.states().get("n3") == "UP", what="a node that joins afterwards")


@pytest.mark.mpi
def test_a_malleable_job_outlives_a_roll_over_and_a_restart(
    cluster: JoinedCluster, tmp_path: Path
) -> None:
    job = Counter(cluster, tmp_path / "counter", "1-3", 2)
    cluster.wait_malleable(job.id)
    epoch = cluster.client.job(job.id).epoch
    cluster.pliant("cluster", "roll-over", "start")
    finish_roll_over(cluster)
    cluster.client.close()
    cluster.processes["server"].terminate()
    cluster.processes["server"].wait(60)
    before = cluster.log("server").count("cluster mode")
    cluster.start_server()
    wait_until(lambda: cluster.log("server").count("cluster mode") > before, what="the server")
    cluster.client = Client(str(cluster.run))
    wait_until(lambda: set(cluster.states().values()) == {"UP"}, what="the nodes")
    # Rank 0 verifies the server under the new root.
    wait_until(lambda: begins_resize(cluster, job.id, 3), what="rank 0 to connect again")
    cluster.resized(job.id, 3, epoch)
    job.finish()


def test_a_node_that_was_off_when_the_roll_over_started(cluster: JoinedCluster) -> None:
    cluster.processes["n1"].terminate()
    cluster.processes["n1"].wait(60)
    cluster.pliant("cluster", "roll-over", "start")
    wait_until(
        lambda: "under the old root: n1\n" in cluster.pliant("cluster", "nodes"),
        timeout=120,
        every=0.5,
        what="n2 to renew",
    )
    told = cluster.pliant("cluster", "roll-over", "finish", code=1)
    assert "under the old root: n1." in told
    cluster.start_node("n1", "--slots", "1")
    finish_roll_over(cluster)
    wait_until(lambda: set(cluster.states().values()) == {"UP"}, what="the nodes")


def begins_resize(cluster: JoinedCluster, job: int, size: int) -> bool:
    """Order a resize; return False if rank 0 is not connected yet."""
    try:
        cluster.client.resize(job, size)
    except RequestError:
        return False
    return True


def finish_roll_over(cluster: JoinedCluster) -> None:
    """Drop the old root as soon as no node needs it."""
    wait_until(
        lambda: "old root" not in cluster.pliant("cluster", "nodes"),
        timeout=120,
        every=0.5,
        what="the nodes' new certificates",
    )
    cluster.pliant("cluster", "roll-over", "finish")
