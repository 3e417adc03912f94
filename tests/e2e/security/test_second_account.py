"""A second account that can reach the users' socket acts on no job of the first; needs root.

The socket is open to its owner alone. The tests open it, as nothing in Pliant does, so that what
the kernel says of the other account reaches the server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterkit.cluster import Cluster
from clusterkit.shared import running_cluster
from testkit import ROOT, wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can have processes of two accounts"),
]

NOBODY, PR_SET_DUMPABLE = 65534, 4
#: In the arguments and in the folder of the first account's jobs.
HIDDEN = "not-for-others"

#: Becomes the other account. Without the last line its files in /proc would stay root's.
BECOME_NOBODY = f"""
os.setgroups([])
os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
ctypes.CDLL(None).prctl({PR_SET_DUMPABLE}, 1, 0, 0, 0)
"""

#: Runs commands as the other account. Python itself may be where that account cannot go, so all
#: modules of the client and of charts are loaded before.
COMMANDS = f"""
import contextlib, ctypes, encodings.ascii, importlib, io, json, os, pkgutil, sys
import pliant.charts, pliant.client
for package in (pliant.charts, pliant.client):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
{BECOME_NOBODY}
results = []
for name, *words in json.loads(sys.argv[1]):
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        try:
            place = "gantt.gantt_command" if name == "gantt" else "commands." + name
            code = importlib.import_module("pliant.client." + place).main(words)
        except SystemExit as end:
            code = end.code
    results.append([code, text.getvalue()])
print(json.dumps(results))
"""

#: The same for single requests, which no command makes as they are.
REQUESTS = f"""
import ctypes, json, os, sys
from pliant.client.connection import Connection
from pliant.client.client_errors import RequestError
{BECOME_NOBODY}
results = []
with Connection() as link:
    for request in json.loads(sys.argv[1]):
        try:
            results.append(["answered", link.request(**request)])
        except RequestError as error:
            results.append(["refused", str(error)])
print(json.dumps(results))
"""


def as_nobody(cluster: Cluster, code: str, asked: object) -> Any:
    """Run code of this page as the other account, and return what it has printed."""
    found = subprocess.run(
        [sys.executable, "-c", code, json.dumps(asked)],
        cwd="/",
        env={
            **os.environ,
            "PLIANT_RUN_DIR": str(cluster.run),
            "PYTHONPATH": str(ROOT / "tests" / "support"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def commands(cluster: Cluster, *lines: str) -> list[tuple[int, str]]:
    """Return exit code and output of commands of the other account."""
    return [(code, text) for code, text in as_nobody(cluster, COMMANDS, [s.split() for s in lines])]


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[Cluster]:
    with running_cluster("fcfs", nodes=1, slots=2) as cluster:
        yield cluster


@pytest.fixture
def opened(cluster: Cluster) -> Iterator[Cluster]:
    """Let other accounts connect to the users' socket."""
    changed = {path: path.stat().st_mode & 0o777 for path in (cluster.base, cluster.run)}
    socket = cluster.run / "server.sock"
    changed[socket] = socket.stat().st_mode & 0o777
    assert changed[cluster.run] == 0o700
    assert changed[socket] == 0o600
    cluster.base.chmod(0o711)
    cluster.run.chmod(0o711)
    socket.chmod(0o666)
    yield cluster
    for path, mode in changed.items():
        path.chmod(mode)


@pytest.fixture
def jobs(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Return two jobs of the first account: one runs, one is held."""
    folder = tmp_path / HIDDEN
    folder.mkdir()
    submit = cluster.client.submit
    out = str(folder / "out")
    running = submit("sh", "-c", "sleep 600", HIDDEN, chdir=str(folder), stdout=out)
    held = submit("true", HIDDEN, chdir=str(folder), stdout=out, hold=True)
    cluster.wait_for(running, lambda job: job.state == "RUNNING", "the job to run")
    yield running, held
    cluster.client.cancel(running, held)
    wait_until(lambda: all(cluster.client.job(job).final for job in (running, held)))


def condition(cluster: Cluster, number: int) -> tuple[object, ...]:
    """Return what a request could have changed, without what changes by itself with time."""
    job = cluster.client.job(number)
    return job.state, job.processors, job.held, job.nodes, job.sizes, job.priority, job.exit_code


def test_the_jobs_of_another_account_are_out_of_reach(
    opened: Cluster, jobs: tuple[int, int]
) -> None:
    before = [condition(opened, job) for job in jobs]
    happened = [len(opened.history(job)) for job in jobs]
    lines = [
        line.format(job=job)
        for job in jobs
        for line in (
            "jobdel {job}",
            "jobctl hold {job}",
            "jobctl release {job}",
            "jobctl suspend {job}",
            "jobctl resume {job}",
            "jobctl requeue {job}",
            "jobctl resize {job} 2",
            "jobctl why {job}",
            "jobctl why {job} --json",
            "jobctl history {job}",
            "jobctl history {job} --json",
        )
    ]
    for line, (code, text) in zip(lines, commands(opened, *lines), strict=True):
        assert code == 1, f"{line}: {text}"
        assert "belongs to root" in text, f"{line}: {text}"
        assert HIDDEN not in text, line
    assert [condition(opened, job) for job in jobs] == before
    assert [len(opened.history(job)) for job in jobs] == happened


def test_others_see_that_there_are_jobs_and_not_what_they_do(
    opened: Cluster, jobs: tuple[int, int]
) -> None:
    lines = ["jobstat", "jobstat --all", "jobstat --json", "jobctl refused --json", "gantt"]
    lines += [f"jobstat {job}" for job in jobs] + [f"jobstat --json {job}" for job in jobs]
    found = commands(opened, *lines)
    for line, (code, text) in zip(lines, found, strict=True):
        assert code == 0, f"{line}: {text}"
        assert HIDDEN not in text, f"{line}: {text}"
    listed = {job["id"]: job for job in json.loads(found[2][1])}
    for job in jobs:
        assert (listed[job]["cwd"], listed[job]["stdout"]) == ("", "")
        assert not listed[job]["command"]
        assert opened.client.job(job).cwd.endswith(HIDDEN)
    asked = [{"op": "jobs", "all": True}, {"op": "history"}]
    assert HIDDEN not in json.dumps(as_nobody(opened, REQUESTS, asked))


def test_nodes_and_server_are_out_of_reach(opened: Cluster) -> None:
    lines = ["node drain n1", "node resume n1", "node remove n1", "nodestat"]
    *refused, (code, text) = commands(opened, *lines)
    for line, (status, said) in zip(lines, refused, strict=False):
        assert status == 1, f"{line}: {said}"
        assert "may do this" in said
    assert (code, "n1" in text) == (0, True)
    ((answer, why),) = as_nobody(opened, REQUESTS, [{"op": "stop"}])
    assert (answer, "may do this" in why) == ("refused", True)
    assert [node.state for node in opened.client.nodes()] == ["UP"]


def test_another_account_cannot_have_its_jobs_run_as_the_servers_user(
    opened: Cluster, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    ((code, text),) = commands(opened, f"jobsub -o /dev/null -- touch {mark}")
    assert code == 1, text
    assert "only the user of this server may do this, because its jobs run as that user" in text
    assert "pliant up" in text
    following = opened.client.submit("true", stdout="/dev/null")
    opened.wait_for(following, lambda job: job.final, "a job of the server's user")
    assert not mark.exists()
    assert {job.user for job in opened.client.jobs(ended=True)} == {"root"}


def test_the_socket_is_closed_unless_somebody_opens_it(cluster: Cluster) -> None:
    ((code, text),) = commands(cluster, "jobstat")
    assert code == 3, text
    assert "Permission denied" in text
