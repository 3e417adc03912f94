"""Another account of the machine gets nothing, starts nothing, and stops nothing; needs root.

The cluster is this user's, and the attacks are those of ``nobody``, in processes with its uid.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from clusterkit.afterwards import idle
from clusterkit.cluster import PLIANT, Cluster
from clusterkit.counter import Counter
from netkit.impostor import GENERATION, JOB
from pliant.client.api import Client
from pliant.client.client_errors import NoServerError, RequestError
from testkit import ROOT, run_python, wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.mpi,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can have processes of two accounts"),
]

NOBODY = 65534
#: Attempts of each daemon that an impostor sees before anything is judged.
VISITS = 3


#: Python itself may be where the other account cannot go: it is loaded first.
BECOME_NOBODY = f"""
import json, os, runpy, socket, sys, time
import netkit.impostor
os.setgroups([])
os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
"""


def as_nobody(code: str, *words: str) -> subprocess.Popen[str]:
    """Run code with the uid of another account."""
    return subprocess.Popen(
        [sys.executable, "-c", BECOME_NOBODY + code, *words],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "support")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def attempt(code: str) -> str:
    """Run code as the other account; what it has printed."""
    process = as_nobody(code)
    text, _ = process.communicate(timeout=120)
    return text


@pytest.fixture
def make_cluster(state_dir: Path) -> Iterator[Callable[[str], Cluster]]:
    """Return what brings up a cluster of one node with some settings."""
    made: list[Cluster] = []

    def make(settings: str) -> Cluster:
        state_dir.parent.chmod(0o711)  # as a home directory is: others may look for what is inside
        file = state_dir.parent / "server.yaml"
        file.write_text(settings)
        cluster = Cluster(state_dir.parent, nodes=1, slots=4, strategy="fcfs")
        cluster.shape += ["--config", str(file)]
        cluster.up()
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        idle(cluster)
        cluster.down()


@contextmanager
def impostor(address: str, folder: Path, *more: str) -> Iterator[Path]:
    """Have the other account serve an address; the file of what it was sent."""
    folder.mkdir(mode=0o777, exist_ok=True)
    folder.chmod(0o777)
    record = folder / "record"
    serve = "netkit.impostor.main(*sys.argv[1:])"
    process = as_nobody(serve, address, str(record), str(folder / "mark"), *more)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        yield record
    finally:
        process.kill()
        process.communicate()


def visits(record: Path, service: str) -> int:
    """How often one service of an impostor was asked for."""
    return sum(service in method and kind == "metadata" for method, kind, _ in notes(record))


def notes(record: Path) -> Sequence[tuple[str, str, str]]:
    if not record.exists():
        return []
    return [json.loads(line) for line in record.read_text().splitlines()]


def secrets_of(cluster: Cluster) -> list[str]:
    """The cluster's secret and the tokens of what runs."""
    files = [cluster.state / "node.secret", *cluster.state.glob("node-*/spool/*/token")]
    assert len(files) > 1
    return [file.read_text().strip() for file in files]


def generation(cluster: Cluster) -> int:
    return int((cluster.state / "node-n1" / "generation").read_text().split()[0])


def resized(cluster: Cluster, number: int, size: int) -> bool:
    """Ask for a size, unless the program has it: its coordinator may still look for the server."""
    if cluster.client.job(number).processors != size:
        with suppress(RequestError):
            cluster.client.resize(number, size)
    return cluster.client.job(number).processors == size


def goes_on(cluster: Cluster, counter: Counter) -> None:
    """See that the job before the attack ends as it wanted to, and that another one runs."""
    following = cluster.client.submit("true", stdout="/dev/null")
    assert following == counter.id + 1 < JOB
    done = cluster.wait_for(following, lambda job: job.final, "a job after the attack")
    assert done.state == "COMPLETED"
    wait_until(lambda: resized(cluster, counter.id, 3), every=0.2, what="the program to be resized")
    counter.finish()


def test_who_squats_on_the_port_of_a_server_gets_nothing(
    make_cluster: Callable[[str], Cluster],
) -> None:
    cluster = make_cluster("listen: 127.0.0.1:0\n")
    counter = Counter(cluster, cluster.base / "counter")
    cluster.wait_malleable(counter.id)
    address = (cluster.run / "server.address").read_text().strip()
    secrets, before = secrets_of(cluster), generation(cluster)
    folder = cluster.base / "public"
    cluster.kill("server")
    with impostor(address, folder) as record:
        for service in ("NodeService", "AppService"):
            wait_until(lambda s=service: visits(record, s) >= VISITS, what=f"visits of {service}")  # type: ignore[misc]
    seen = notes(record)
    assert [each for each in seen if each[1] == "message"] == []
    text = record.read_text()
    assert not any(each in text or each.encode().hex() in text for each in secrets)
    assert not (folder / "mark").exists()
    assert generation(cluster) == before < GENERATION
    assert len(cluster.ranks(counter.id)) == 2
    # The next server finds the port taken. Its address is read while streams to the old one stand.
    with impostor(address, folder / "again", "hold") as record:
        for service in ("NodeService", "AppService"):
            wait_until(lambda s=service: visits(record, s) >= 1, what=f"a visit of {service}")  # type: ignore[misc]
        cluster.up()
        assert (cluster.run / "server.address").read_text().strip() != address
        goes_on(cluster, counter)
    assert generation(cluster) == before + 1


FLOOD = """
import grpc
channel = grpc.insecure_channel({address!r}, [("grpc.max_send_message_length", -1)])
for method in ("/pliant.v1.AppService/Session", "/pliant.v1.NodeService/Connect"):
    for data in [b"\\xff" * 100] * {malformed} + [b"x" * (16 << 20)] * {large}:
        try:
            list(channel.stream_stream(method)(iter([data]), timeout=60))
        except grpc.RpcError:
            pass
print("sent")
"""
#: 1.2 KB were written for each malformed message, and 224 MB kept for 40 of 16 MB.
MALFORMED, LARGE, MAX_LOG_BYTES, MAX_GROWTH = 500, 20, 20_000, 48 << 20


def test_a_flood_fills_neither_the_log_nor_the_memory(
    make_cluster: Callable[[str], Cluster],
) -> None:
    cluster = make_cluster("listen: 127.0.0.1:0\n")
    counter = Counter(cluster, cluster.base / "counter")
    cluster.wait_malleable(counter.id)
    log, server = cluster.state / "server.log", cluster.daemon("server")
    address = (cluster.run / "server.address").read_text().strip()
    written, used = log.stat().st_size, server.memory_info().rss
    assert attempt(FLOOD.format(address=address, malformed=MALFORMED, large=LARGE)) == "sent\n"
    goes_on(cluster, counter)
    assert log.stat().st_size - written < MAX_LOG_BYTES
    assert server.memory_info().rss - used < MAX_GROWTH


TRIES = """
import os, socket
run = {run!r}
def tried(what, call):
    try:
        call()
    except PermissionError:
        print(what, "refused")
    else:
        print(what, "ALLOWED")
def connect(name):
    link = socket.socket(socket.AF_UNIX)
    link.connect(run + "/" + name)
tried("listing", lambda: os.listdir(run))
tried("reading", lambda: open(run + "/server.address").read())
tried("connecting", lambda: connect("grpc.sock"))
tried("connecting", lambda: connect("server.sock"))
tried("removing", lambda: os.unlink(run + "/grpc.sock"))
tried("binding", lambda: socket.socket(socket.AF_UNIX).bind(run + "/grpc.sock"))
tried("moving", lambda: os.rename(run, run + ".old"))
"""


def test_sockets_are_out_of_reach(make_cluster: Callable[[str], Cluster]) -> None:
    cluster = make_cluster("")
    address = (cluster.run / "server.address").read_text().strip()
    assert address == f"unix:{cluster.run}/grpc.sock"
    counter = Counter(cluster, cluster.base / "counter")
    cluster.wait_malleable(counter.id)
    for daemon in cluster.daemons().values():
        assert list(daemon.net_connections("inet")) == []
    tries = TRIES.format(run=str(cluster.run))
    assert {line.split()[1] for line in attempt(tries).splitlines()} == {"refused"}
    cluster.kill("server")
    assert {line.split()[1] for line in attempt(tries).splitlines()} == {"refused"}
    cluster.up()
    goes_on(cluster, counter)


LISTEN = """
import socket, time
listener = socket.socket(socket.AF_UNIX)
listener.bind({path!r})
listener.listen()
print('serving', flush=True)
time.sleep(600)
"""


def test_a_run_directory_of_another_account_is_not_used(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner has made it first, where everybody may make one."""
    state_dir.parent.chmod(0o1777)
    run = state_dir.parent / "squatted"
    attempt(f"import os; os.mkdir({str(run)!r}, 0o777); os.chmod({str(run)!r}, 0o777)")
    assert run.stat().st_uid == NOBODY
    monkeypatch.setenv("PLIANT_RUN_DIR", str(run))
    cluster = Cluster(state_dir.parent, nodes=1, slots=1, strategy="fcfs")
    cluster.run = run
    bind = LISTEN.format(path=f"{run}/server.sock")
    squatter = as_nobody(bind)
    try:
        assert squatter.stdout is not None
        squatter.stdout.readline()
        result = run_python(*PLIANT, "up", "--detach", *cluster.shape, check=False, timeout=60)
        assert result.returncode != 0
        assert f"{run} belongs to the user with id {NOBODY}" in result.stderr
        assert "PLIANT_RUN_DIR" in result.stderr
        with pytest.raises(NoServerError, match="belongs to the user with id"):
            Client(str(run)).nodes()
    finally:
        squatter.kill()
        squatter.communicate()
