"""A federation: a grid server without nodes of its own, and two sites with users of their own."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from clusterkit.cluster import PLIANT, Cluster
from clusterkit.counter import Counter
from pliant.client.api import Job
from pliant.client.client_errors import ClientError
from pliant.client.cluster import process_table
from serverkit import Server
from testkit.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(600)]

SITES = ("delft", "leiden")
SLOTS = 3


class Grid(Cluster):
    """The grid server, with the folders of a cluster."""

    def __init__(self, base: Path) -> None:
        super().__init__(base, 0, 1, "equipartition")
        base.mkdir()
        self.server = Server(
            base,
            strategy="equipartition",
            federated_processors=SLOTS * len(SITES),
            lease_s=6.0,
            beat_interval_s=0.5,
        )


class Federation:
    """The daemon of the federation, the grid server, and the sites."""

    def __init__(self, base: Path, patch: pytest.MonkeyPatch) -> None:
        self._base, self._patch = base, patch
        self.grid = Grid(base / "grid")
        self.sites = {name: Cluster(base / name, 1, SLOTS, "fcfs") for name in SITES}
        self._daemon: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        for cluster in self.sites.values():
            self._use(cluster)
            cluster.up()
        self.grid.server.start()
        self.start()

    def down(self) -> None:
        self.stop()
        self._call("--end-stubs")
        wait_until(lambda: not self.stub_processes(), what="the stubs to end")
        self.grid.client.close()
        self.grid.server.stop()
        for cluster in self.sites.values():
            self._use(cluster)
            cluster.down()

    def _use(self, cluster: Cluster) -> None:
        self._patch.setenv("PLIANT_STATE_DIR", str(cluster.state))
        self._patch.setenv("PLIANT_RUN_DIR", str(cluster.run))

    def _settings(self) -> str:
        file = self._base / "federation.yaml"
        sites = {
            name: {
                "run_dir": str(cluster.run),
                "max_stubs": SLOTS,
                "threshold": int(name == "leiden"),
                "node_dir": str(self._base),
                "log_dir": str(self._base),
            }
            for name, cluster in self.sites.items()
        }
        times = {"poll_s": 0.3, "idle_s": 1.5, "retry_s": 3600, "start_timeout_s": 45}
        folders = {"run_dir": str(self.grid.run), "state_dir": str(self.grid.state)}
        file.write_text(json.dumps({"sites": sites, "orphan_s": 60, **times, **folders}))
        return str(file)

    def _call(self, *words: str) -> None:
        command = [sys.executable, *PLIANT, "federation", "--config", self._settings(), *words]
        subprocess.run(command, check=True, timeout=60)

    def start(self) -> None:
        command = [sys.executable, *PLIANT, "federation", "--config", self._settings()]
        with (self._base / "federation.log").open("ab") as log:
            before = log.tell()
            self._daemon = subprocess.Popen(command, stdout=log, stderr=log)
        self.wait(lambda: "2 sites" in self.log()[before:], "the federation to start")

    def stop(self) -> None:
        if self._daemon is not None:
            self._daemon.send_signal(signal.SIGTERM)
            assert self._daemon.wait(30) == 0
            self._daemon = None

    def log(self) -> str:
        return (self._base / "federation.log").read_text()

    def stubs(self, site: str) -> list[Job]:
        return [job for job in self.sites[site].client.jobs() if job.name.startswith("stub:")]

    def stub_processes(self) -> list[int]:
        """Return the processes of all stubs and of jobs that run on stubs."""
        base = f"{self._base}/pliant-"
        return [
            pid
            for pid in psutil.pids()
            if process_table.environment(pid).get("PLIANT_STATE_DIR", "").startswith(base)
            or process_table.environment(pid).get("PLIANT_TOKEN_FILE", "").startswith(base)
        ]

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        def accept() -> bool:
            try:
                return ready()
            except ClientError:
                return False

        try:
            wait_until(accept, timeout=120, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()[-4000:]}") from None

    def occupy(self, site: str, processors: int) -> int:
        """Let a user of a site run a job there."""
        client = self.sites[site].client
        job = client.submit("sleep", "3600", sizes=processors, stdout="/dev/null")
        self.wait(lambda: client.job(job).state == "RUNNING", f"a local job of {site}")
        return job


@pytest.fixture
def federation() -> Iterator[Federation]:
    base = Path(tempfile.mkdtemp(prefix="pliant-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        found = Federation(base, stack.enter_context(pytest.MonkeyPatch.context()))
        stack.callback(found.down)
        found.up()
        yield found


def test_jobs_on_two_sites(federation: Federation, tmp_path: Path) -> None:
    check_growth_into_a_second_site(federation, tmp_path)
    check_processors_that_a_local_user_takes_first(federation)


def check_growth_into_a_second_site(federation: Federation, folder: Path) -> None:
    """Have a job grow into another site, shrink back, and lose a stub."""
    grid = federation.grid
    local = {"delft": federation.occupy("delft", 1), "leiden": federation.occupy("leiden", 1)}
    counter = Counter(grid, folder / "counter", sizes="2-6", prefer=2)
    # Two processors at delft, and one at leiden: one must stay idle there.
    grid.wait_for(counter.id, lambda job: job.processors == 3, "3 processors")
    assert {node.cluster for node in grid.client.nodes() if node.used} == set(SITES)
    assert [len(federation.stubs(site)) for site in SITES] == [2, 1]

    # A restarted federation knows its stubs, and starts none twice.
    federation.stop()
    federation.start()
    grid.client.resize(counter.id, 2)
    federation.wait(lambda: not federation.stubs("leiden"), "leiden to have its processor again")
    federation.wait(lambda: len(grid.client.nodes()) == 2, "the node to be removed")
    assert len(federation.stubs("delft")) == 2
    for site, job in local.items():
        assert federation.sites[site].client.job(job).state == "RUNNING"

    # A user of delft cancels a stub: the job loses a node and fails, and all stubs are given back.
    federation.sites["delft"].client.cancel(federation.stubs("delft")[0].id)
    federation.wait(lambda: grid.client.job(counter.id).final, "the end of the job")
    assert grid.client.job(counter.id).state == "NODE_FAIL", grid.report(counter.id)
    federation.wait(
        lambda: not grid.client.nodes() and not any(map(federation.stubs, SITES)),
        "all stubs to be given back",
    )
    assert not federation.stub_processes()
    for site, job in local.items():
        federation.sites[site].client.cancel(job)


def check_processors_that_a_local_user_takes_first(federation: Federation) -> None:
    """See that processors which a local user takes before a stub are not claimed forever."""
    grid = federation.grid
    federation.occupy("leiden", 3)
    federation.stop()
    job = grid.client.submit("true", sizes=3, stdout="/dev/null")
    late = federation.occupy("delft", 1)
    federation.start()
    grid.wait_for(job, lambda found: found.state == "PENDING", "to wait")
    federation.sites["delft"].client.cancel(late)
    federation.wait(lambda: grid.client.job(job).final, "the job to end")
    assert grid.client.job(job).state == "COMPLETED"
    federation.wait(
        lambda: not grid.client.nodes() and not federation.stubs("delft"), "all to be given back"
    )
