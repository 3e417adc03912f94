"""Case 14: another process has the database locked, for a while or for ever."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusterkit.checker import settled
from clusterkit.cluster import Cluster
from clusterkit.commands import run_command
from pliant.client.api import Client
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

USERS = 5
#: Longer than it takes until a node that is not heard is SUSPECT, seconds.
A_WHILE_S = 3.0

HOLDER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
database.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(cluster: Cluster) -> Iterator[None]:
    """Have another process keep the database locked."""
    words = [sys.executable, "-c", HOLDER, str(cluster.state / "pliant.db")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        yield  # the end of its input, at the end of this block, is the end of the lock


def submit(cluster: Cluster) -> int:
    with Client(str(cluster.run)) as client:
        return client.submit("true", stdout="/dev/null")


def states(cluster: Cluster) -> set[str]:
    return {node.state for node in cluster.client.nodes()}


def assert_heard(cluster: Cluster) -> None:
    """See that its nodes are heard; on a busy machine a beat may come late, and the next one."""
    assert states(cluster) <= {"UP", "SUSPECT"}
    wait_until(lambda: states(cluster) == {"UP"}, what="nodes that are heard")


@pytest.mark.case(14)
def test_submissions_wait_for_a_lock_that_goes(cluster: Cluster) -> None:
    with ThreadPoolExecutor(USERS) as pool:
        with locked(cluster):
            users = [pool.submit(submit, cluster) for _ in range(USERS)]
            end = time.monotonic() + A_WHILE_S
            while time.monotonic() < end:
                assert_heard(cluster)
                assert not any(user.done() for user in users)
                time.sleep(0.1)
        numbers = {user.result(60) for user in users}
    assert len(numbers) == USERS
    for number in numbers:
        ended = cluster.wait_for(number, lambda job: job.final, f"job {number} to end")
        assert ended.state == "COMPLETED"


@pytest.mark.case(14)
@pytest.mark.parametrize("cluster", ["database_timeout_s: 1\n"], indirect=True)
def test_a_submission_that_waits_too_long_for_a_lock_is_refused_for_now(
    cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    script = f"while [ ! -e '{gate}' ]; do sleep 0.05; done; exit 5"
    runs = cluster.client.submit("/bin/sh", "-c", script, stdout="/dev/null")
    cluster.wait_for(runs, lambda job: job.state == "RUNNING", "the job to run")
    waits = cluster.client.submit("true", hold=True, stdout="/dev/null")
    with ThreadPoolExecutor(USERS) as pool, locked(cluster):
        users = [pool.submit(run_command, "jobsub", "true", cwd=tmp_path) for _ in range(USERS)]
        gate.touch()
        for user in users:
            said = user.result(90)
            assert said.code == 1
            assert "database is locked" in said.line
            assert "try again later" in said.line
        wait_until(lambda: not cluster.ranks(runs), what="its process to end")
        assert not cluster.client.job(runs).final, "an end that is not stored"
        said = run_command("jobdel", str(waits))
        assert (said.code, "cannot be written (database is locked)" in said.line) == (1, True)
        assert_heard(cluster)
    ended = cluster.wait_for(runs, lambda job: job.final, "its end to be stored")
    assert (ended.state, ended.exit_code) == ("FAILED", 5)
    if not cluster.client.job(waits).final:  # it was withdrawn, and not kept for later
        cluster.client.cancel(waits)
    after = submit(cluster)
    cluster.wait_for(after, lambda job: job.final, "a job that is submitted afterwards")
    assert set(settled(cluster.state).jobs) == {runs, waits, after}, "what was refused is not there"
