"""Case 12: the server is told to stop while users submit and wait."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clusterkit.checker import settled
from clusterkit.cluster import Cluster, gone
from pliant.client.api import Client
from serverkit import User
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

USERS, WAITING = 6, 3
#: It takes a second or two; a machine that is busy with other tests may need longer.
STOP_S = 60.0


@contextmanager
def own_server(cluster: Cluster, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have a server in the place of the cluster's that is a child of ours: to see its code."""
    server = cluster.daemon("server")
    words = server.cmdline()
    server.send_signal(signal.SIGTERM)
    wait_until(lambda: gone(server), what="the first server to stop")
    cluster.client.close()
    cluster.missing.add("server")
    with (folder / "server.log").open("ab") as log:
        child = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        wait_until((cluster.run / "server.sock").exists, what="the second server")
        wait_until(
            lambda: {node.state for node in cluster.client.nodes()} == {"UP"},
            what="nodes that are up",
        )
        yield child
    finally:
        child.kill()
        child.wait()


class Users:
    """Submit one job after the other, from before the stop to after the next start."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._over = cluster, threading.Event()
        self.numbers: list[int] = []
        self.failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(USERS)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        try:
            with Client(str(self._cluster.run)) as client:
                while not self._over.is_set():
                    self.numbers.append(client.submit("true", hold=True, stdout="/dev/null"))
        except BaseException as error:
            self.failures.append(error)

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(90)
            assert not thread.is_alive(), "a user has no answer"
        assert self.failures == []


def ask(user: User, **request: Any) -> None:
    user.send(json.dumps(request).encode() + b"\n")


@pytest.mark.case(12)
def test_a_stop_under_load_answers_waiting_users(cluster: Cluster, tmp_path: Path) -> None:
    with own_server(cluster, tmp_path) as server:
        gate = tmp_path / "gate"
        script = f"while [ ! -e '{gate}' ]; do sleep 0.05; done; exit 5"
        runs = cluster.client.submit("/bin/sh", "-c", script, stdout="/dev/null")
        cluster.wait_for(runs, lambda job: job.state == "RUNNING", "the job to run")
        ranks = cluster.ranks(runs)
        waiting = [User(cluster.run / "server.sock") for _ in range(WAITING)]
        for user in waiting:
            ask(user, op="wait", id=runs)
        users = Users(cluster)
        wait_until(lambda: len(users.numbers) > 5 * USERS, what="load")
        server.send_signal(signal.SIGTERM)
        assert server.wait(STOP_S) == 0
    for user in waiting:
        assert user.receive()["error"]["kind"] == "stopping"
        user.close()
    assert ranks[0] in cluster.ranks(runs)
    before = len(users.numbers)
    cluster.up()
    wait_until(lambda: len(users.numbers) > before + USERS, what="submissions to go on")
    users.stop()
    assert len(set(users.numbers)) == len(users.numbers)
    gate.touch()
    ended = cluster.wait_for(runs, lambda job: job.final, "the job to end")
    assert (ended.state, ended.exit_code) == ("FAILED", 5)
    found = settled(cluster.state)
    assert set(users.numbers) <= set(found.jobs)
    assert len(found.jobs) == len(users.numbers) + 1, "a job of nobody"
    assert "Traceback" not in (tmp_path / "server.log").read_text()
