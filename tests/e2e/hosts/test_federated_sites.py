"""A federation of three sites on hosts of their own, one of which is cut off twice.

Each site has a server for all users, and bob runs a job there. Alice has an account at each site.
She reaches the sites through login agents, as their ordinary user, and her stubs join her grid
server with tokens.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from clusterkit.applications import checksum, paced, plain
from helperkit import ALICE, BOB, needs_root
from helperkit.federated_sites import GridHost
from netkit.network import Network, NetworkError
from testkit.processes import run_python

pytestmark = [needs_root, pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(900)]

SLOTS = {"delft": 3, "leiden": 2, "mmn": 2}
#: Poll often, give idle stubs back soon, and let stubs end soon that are cut off.
TIMES = {"poll_s": 0.5, "idle_s": 1.5, "retry_s": 3600, "start_timeout_s": 60, "orphan_s": 8}
#: Of the job; it computes for 100 s at least unless it is told to hurry.
LENGTH = 25


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network(list(SLOTS), "10.77.0")
    try:
        made.up()
    except NetworkError as error:
        pytest.skip(f"a network cannot be made here: {error}")
    yield made
    made.down()


@pytest.fixture
def grid(network: Network, monkeypatch: pytest.MonkeyPatch) -> Iterator[GridHost]:
    monkeypatch.delenv("FI_TCP_IFACE", raising=False)  # each node finds its own interface
    made = GridHost(network, SLOTS, **TIMES)
    try:
        made.up()
        yield made
    finally:
        made.close()


class AliceJob:
    """A malleable job with checkpoints at the grid server."""

    def __init__(self, grid: GridHost) -> None:
        self.grid, self.folder = grid, grid.output / "heat"
        self.folder.mkdir()
        os.chown(self.folder, ALICE, ALICE)
        self.hurry = self.folder / "hurry"
        self.id = grid.server_client.submit(
            grid.python, *paced("heat", self.folder, self.hurry, LENGTH),
            sizes="2-4", prefer=2, type="mpi", stdout=str(self.folder / "out"),
            chdir=str(self.folder),
        )  # fmt: skip

    def has(self, size: int, *sites: str) -> None:
        """Wait until the job has a size at these sites, and has computed there."""

        def ready() -> bool:
            job = self.grid.server_client.job(self.id)
            assert not job.final, self.grid.report()
            return (job.state, job.held) == ("RUNNING", size) and self.sites() == set(sites)

        self.grid.wait(ready, f"{size} processors")
        before = self.iteration()
        self.grid.wait(lambda: self.iteration() > before, "iterations")

    def sites(self) -> set[str]:
        return {node.cluster for node in self.grid.server_client.nodes() if node.used}

    def iteration(self) -> int:
        progress = self.grid.server_client.job(self.id).progress or {}
        return int(progress.get("iteration") or 0)


def processes_at(network: Network, site: str) -> list[psutil.Process]:
    """Return alice's processes on the host of a site."""
    own = os.stat(f"/run/netns/{network.namespace(site)}").st_ino
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.uids().real == ALICE
                and os.stat(f"/proc/{process.pid}/ns/net").st_ino == own
            ):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def test_a_job_goes_on_when_a_site_is_cut_off_and_grows_there_again(
    network: Network, grid: GridHost, tmp_path: Path
) -> None:
    local = {name: site.occupy(1) for name, site in grid.sites.items()}
    job = AliceJob(grid)
    job.has(4, *SLOTS)
    assert [len(site.stubs()) for site in grid.sites.values()] == [2, 1, 1]

    leiden = grid.sites["leiden"]
    with network.cut("leiden"):
        job.has(3, "delft", "mmn")
        (lost,) = [e for e in grid.server_client.history(job.id) if e.kind == "job.survived"]
        assert lost.data["iteration"] > 0
        # The stub at leiden ends although nobody can reach it, and bob has his processor there.
        grid.wait(lambda: not leiden.stubs(), "the end of the stub that was cut off")
        grid.wait(lambda: not processes_at(network, "leiden"), "the end of its processes")
        second = leiden.occupy(1)
        leiden.as_user(BOB).cancel(second)
        assert grid.server_client.job(job.id).held == 3

    grid.wait(lambda: bool(leiden.stubs()), "a new claim")
    with network.cut("leiden"):
        grid.wait(lambda: not leiden.stubs(), "the end of a stub that cannot register")
        job.has(3, "delft", "mmn")

    job.has(4, *SLOTS)
    grid.server_client.resize(job.id, 2)
    grid.wait(lambda: sum(len(s.stubs()) for s in grid.sites.values()) == 2, "stubs to end")
    grid.wait(lambda: len(grid.server_client.nodes()) == 2, "their nodes to be removed")
    job.has(2, *job.sites())
    for name, site in grid.sites.items():
        found = site.as_user(BOB).job(local[name])
        assert (found.state, found.run) == ("RUNNING", 1)

    job.hurry.touch()
    grid.wait(lambda: grid.server_client.job(job.id).final, "the end of the job")
    assert grid.server_client.job(job.id).state == "COMPLETED", grid.report()
    alone = run_python(*plain("heat", tmp_path, LENGTH)).stdout
    assert checksum((job.folder / "out").read_text()) == checksum(alone)
    grid.wait(
        lambda: not grid.server_client.nodes() and not any(s.stubs() for s in grid.sites.values()),
        "all stubs to be given back",
    )
    assert not any(processes_at(network, name) for name in grid.sites)
