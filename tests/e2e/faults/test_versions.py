"""Daemons of two versions under running jobs: each is upgraded and downgraded, no job is lost."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from clusterkit.cluster import Cluster, gone
from clusterkit.counter import Counter
from clusterkit.shared import running_cluster
from clusterkit.versions import make_newer, make_older, point
from pliant.client.api import Client
from pliant.client.client_errors import ClientError, NoServerError, RequestError
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(400)]


#: Processors of the malleable job between two resizes.
SIZE = 2


class Versions:
    """The two versions, and the link by which daemons find the one that is installed."""

    def __init__(self, base: Path) -> None:
        self.installed = base / "installed"
        self.older, self.newer = make_older(base / "older"), make_newer(base / "newer")

    def install(self, version: Path) -> None:
        """Put a version in the place of the other; who runs goes on with what it has loaded."""
        point(self.installed, version)


@pytest.fixture(name="versions")
def _versions(monkeypatch: pytest.MonkeyPatch) -> Iterator[Versions]:
    base = Path(tempfile.mkdtemp(prefix="pliant-versions-"))
    found = Versions(base)
    found.install(found.older)
    monkeypatch.setenv("PYTHONPATH", str(found.installed))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # else one finds the other's
    yield found
    shutil.rmtree(base)


@pytest.fixture(name="cluster")
def _cluster(versions: Versions) -> Iterator[Cluster]:
    with running_cluster("fcfs", nodes=2, slots=4) as cluster:
        yield cluster
        versions.install(versions.newer)
        for name in ("server", "node-n1", "node-n2"):
            stop(cluster, name)


class Load:
    """Short jobs, one after the other, each with an exit code of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._run = str(cluster.run)
        self.codes: dict[int, int] = {}
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._submit)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()

    def _submit(self) -> None:
        code = 0
        while not self._enough.is_set():
            with suppress(NoServerError), Client(self._run) as client:
                while not self._enough.wait(0.2):
                    argv = ["/bin/sh", "-c", f"exit {code}"]
                    number = client.submit(*argv, type="uni", stdout="/dev/null")
                    self.codes[number] = code
                    code = (code + 1) % 8
            self._enough.wait(0.2)

    def await_more(self) -> None:
        """Wait until some more were submitted, and all of those before have ended."""
        before = len(self.codes)
        wait_until(lambda: len(self.codes) > before + 2, timeout=60, what="more jobs")
        wait_until(lambda: self._ended() >= before, timeout=120, what="their ends")

    def _ended(self) -> int:
        with suppress(ClientError), Client(self._run) as client:
            jobs = client.jobs(list(self.codes))
            return sum(job.final for job in jobs)
        return 0


def stop(cluster: Cluster, name: str) -> None:
    """Stop a daemon as for an upgrade."""
    process = cluster.daemon(name)
    process.terminate()
    wait_until(lambda: gone(process), timeout=60, what=f"{name} to be gone")
    cluster.missing.add(name)
    if name == "server":
        cluster.client.close()


def replace_launcher(cluster: Cluster, node: str) -> None:
    """Have a controller start its launcher from what is installed now."""
    name = f"launcher of node-{node}"
    before = cluster.daemons()[name]
    before.send_signal(signal.SIGKILL)

    def is_new() -> bool:
        with suppress(psutil.Error):
            found = cluster.daemons().get(name)
            return found is not None and found.pid != before.pid
        return False

    wait_until(is_new, timeout=60, what="another launcher")


def gated(cluster: Cluster, gate: Path, code: int) -> int:
    """Submit a job that ends with a code when a file is there, and wait until it runs."""
    command = f"while [ ! -e '{gate}' ]; do sleep 0.1; done; exit {code}"
    number = cluster.client.submit("/bin/sh", "-c", command, type="uni", stdout="/dev/null")
    cluster.wait_for(number, lambda job: job.state == "RUNNING", "a command to run")
    wait_until(lambda: cluster.ranks(number), what="its process")
    return number


def swap(cluster: Cluster, gate: Path, held: int, *, server_first: bool) -> None:
    """Replace the daemons one by one; a job ends while its controller is away."""
    rank = cluster.ranks(held)[0]
    other = "n2" if rank.node == "n1" else "n1"
    replace_launcher(cluster, other)
    if server_first:
        stop(cluster, "server")
        cluster.up()
    stop(cluster, f"node-{rank.node}")
    gate.touch()
    wait_until(lambda: not cluster.ranks(held), what="the end of its process")
    cluster.up()
    stop(cluster, f"node-{other}")
    cluster.up()
    if not server_first:
        stop(cluster, "server")
        cluster.up()


def check_malleable(counter: Counter) -> None:
    """Have the job grow and shrink."""
    cluster = counter.cluster

    def is_connected(_: object) -> bool:
        return not any("not connected" in line for line in cluster.client.why(counter.id).text)

    for size in (SIZE + 1, SIZE):
        cluster.wait_for(counter.id, is_connected, "its coordinator to be connected")
        epoch = cluster.client.job(counter.id).epoch
        wait_until(partial(requested, counter, size), every=0.2)
        cluster.resized(counter.id, size, epoch)


def requested(counter: Counter, size: int) -> bool:
    """Request a resize; return False if short jobs have all other processors at the moment."""
    try:
        counter.cluster.client.resize(counter.id, size)
    except RequestError:
        return False
    return True


def installed_in(process: psutil.Process) -> bool:
    return any("installed" in part for part in process.environ().get("PYTHONPATH", "").split(":"))


def test_every_daemon_is_upgraded_and_downgraded_under_running_jobs(
    cluster: Cluster, versions: Versions, tmp_path: Path
) -> None:
    assert all(installed_in(process) for process in cluster.daemons().values())
    counter = Counter(cluster, tmp_path / "counter", sizes="1-4")
    cluster.wait_malleable(counter.id)
    gates = [tmp_path / name for name in ("upgrade", "downgrade", "last")]
    held = [gated(cluster, gate, code) for gate, code in zip(gates, (5, 6, 7), strict=True)]
    with Load(cluster) as load:
        load.await_more()
        for version, number, gate, server_first in (
            (versions.newer, held[0], gates[0], True),
            (versions.older, held[1], gates[1], False),
        ):
            versions.install(version)
            swap(cluster, gate, number, server_first=server_first)
            check_malleable(counter)
            load.await_more()
    gates[2].touch()
    ends = [cluster.client.wait(number) for number in held]
    assert [(end.state, end.exit_code) for end in ends] == [("FAILED", code) for code in (5, 6, 7)]
    found = {number: cluster.client.wait(number).exit_code for number in load.codes}
    assert found == load.codes
    counter.finish()
    assert cluster.client.job(counter.id).run == 1
    assert not cluster.history(counter.id, "job.failed")
