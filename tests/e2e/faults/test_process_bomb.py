"""Case 43: a job that starts processes without end is ended, and its node goes on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.afterwards import idle
from clusterkit.cluster import Cluster
from pliant.nodectl.host import procfs
from pliant.nodectl.host.cgroup_hierarchies import base
from pliant.nodectl.host.process_limit import task_limit
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

#: Of a job on a node; and what the bomb tries, which ends by itself after a minute.
MAX_PROCESSES, TRIES = 50, 3000
BOMB = f"""
import os, time
try:
    for _ in range({TRIES}):
        if os.fork() == 0:
            os.execv("/bin/sleep", ["sleep", "60"])
except BlockingIOError:
    pass
time.sleep(60)
"""
#: Threads count for the kernel alone.
THREADS = f"""
import threading
threading.stack_size(65536)
over, started = threading.Event(), 0
try:
    for _ in range({TRIES}):
        threading.Thread(target=over.wait, daemon=True).start()
        started += 1
except RuntimeError as error:
    print(error)
over.set()
print(started)
"""


@pytest.fixture
def cluster(state_dir: Path) -> Iterator[Cluster]:
    cluster = Cluster(state_dir.parent, nodes=1, slots=2, strategy="fcfs")
    cluster.shape += ["--most-processes", str(MAX_PROCESSES)]
    cluster.up()
    yield cluster
    idle(cluster)
    cluster.down()


def processes(job: int, state: Path) -> list[int]:
    """Return all processes that a job has left, whoever their parents are."""
    marks = os.fsencode(f"PLIANT_JOB={job}"), os.fsencode(f"PLIANT_TOKEN_FILE={state}/")
    return [
        pid
        for pid in procfs.processes()
        if (words := procfs.environment(pid))
        and marks[0] in words
        and any(word.startswith(marks[1]) for word in words)
    ]


def kernel_limits() -> bool:
    """Return whether the pids controller can be used here."""
    return base("pids") is not None


def test_the_next_job_on_the_node_of_a_bomb_runs(cluster: Cluster) -> None:
    daemons = {name: each.pid for name, each in cluster.daemons().items()}
    submit = cluster.client.submit
    quiet = submit("sleep", "600", type="uni", stdout="/dev/null")
    cluster.wait_for(quiet, lambda job: job.state == "RUNNING", "another job to run")
    bomb = submit(sys.executable, "-c", BOMB, type="uni", stdout="/dev/null")
    ended = cluster.wait_for(bomb, lambda job: job.final, "the bomb to be ended")
    assert ended.state == "FAILED"
    assert f"processes, and may have {MAX_PROCESSES} on a node" in ended.reason
    assert processes(bomb, cluster.state) == []
    following = submit("true", type="uni", stdout="/dev/null")
    done = cluster.wait_for(following, lambda job: job.final, "a job after the bomb")
    assert done.state == "COMPLETED"
    assert cluster.client.job(quiet).state == "RUNNING"
    wait_until(lambda: [node.state for node in cluster.client.nodes()] == ["UP"])
    assert {name: each.pid for name, each in cluster.daemons().items()} == daemons
    cluster.client.cancel(quiet)


@pytest.mark.skipif(not kernel_limits(), reason="the pids controller cannot be used here")
def test_the_kernel_keeps_a_job_to_its_tasks(cluster: Cluster, tmp_path: Path) -> None:
    submit, out = cluster.client.submit, tmp_path / "out"
    job = submit(sys.executable, "-c", THREADS, type="uni", stdout=str(out))
    done = cluster.wait_for(job, lambda job: job.final, "the threads to end")
    assert done.state == "COMPLETED", out.read_text()
    refusal, started = out.read_text().splitlines()
    assert "can't start new thread" in refusal
    assert MAX_PROCESSES < int(started) < task_limit(MAX_PROCESSES)
    following = submit("true", type="uni", stdout="/dev/null")
    cluster.wait_for(following, lambda job: job.state == "COMPLETED", "the next job")
