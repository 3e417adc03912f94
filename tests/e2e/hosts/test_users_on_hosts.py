"""Alice and bob on separate hosts: TLS, root helpers, and accounts without rights in between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from helperkit import ALICE, BOB, needs_root
from helperkit.hosts import SiteOfHosts
from netkit.network import Network, NetworkError
from pliant.client.client_errors import RequestError
from testkit import ROOT, wait_until

pytestmark = [needs_root, pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(500)]

PROGRAM = str(ROOT / "tests" / "e2e" / "apps" / "bargaining.py")
NODES = {"n1": 2, "n2": 2}


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network(list(NODES), "10.77.0")
    try:
        made.up()
    except NetworkError as error:
        pytest.skip(f"a network cannot be made here: {error}")
    try:
        yield made
    finally:
        made.down()


@pytest.fixture
def site(network: Network, monkeypatch: pytest.MonkeyPatch) -> Iterator[SiteOfHosts]:
    monkeypatch.delenv("FI_TCP_IFACE", raising=False)  # each node finds its own interface
    made = SiteOfHosts(network, NODES)
    try:
        made.up()
        yield made
    finally:
        made.close()


class AliceJob:
    """A malleable job of alice, which runs on two processors at first."""

    def __init__(self, site: SiteOfHosts) -> None:
        self.site, self.folder = site, site.output / "alice"
        self.output = self.folder / "out"
        self.folder.mkdir(mode=0o700)
        os.chown(self.folder, ALICE, ALICE)
        self.id = site.as_user(ALICE).submit(
            site.python, PROGRAM, str(self.folder), "{}", sizes="1-4", prefer=2, type="mpi",
            stdout=str(self.output), chdir=str(self.folder),
            env={**os.environ, "SECRET": "of-alice"},
        )  # fmt: skip

    def has(self, size: int) -> None:
        """Wait until the job has a size and has done a step there."""
        wanted = ("RUNNING", size)
        self.site.wait(ALICE, self.id, lambda state, held: (state, held) == wanted, f"{size}")
        wait_until(lambda: len(self.ranks()) == size, what=f"{size} ranks", timeout=60)
        before = self.steps()
        wait_until(lambda: self.steps() > before + 1, what="steps", timeout=60)

    def resize(self, size: int) -> None:
        """Fix the size of the job."""

        def accepted() -> bool:
            try:
                self.site.as_user(ALICE).resize(self.id, size)
            except RequestError as error:  # the strategy may be resizing it
                return "already has" in str(error)
            return True

        wait_until(accepted, what=f"a resize to {size}", timeout=90, every=0.2)
        self.has(size)

    def steps(self) -> int:
        try:
            return int((self.folder / "steps").read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def ranks(self) -> list[psutil.Process]:
        """Return the processes of the program on all hosts."""
        found = []
        for process in psutil.process_iter():
            try:
                if PROGRAM in process.cmdline() and str(self.folder) in process.cmdline():
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def finish(self) -> None:
        (self.folder / "say").write_text("stop")
        self.site.wait(ALICE, self.id, lambda state, _: state == "COMPLETED", "its end")


def check_ranks(job: AliceJob, hosts: set[str]) -> None:
    """Check that the ranks are alice's, and on the right hosts."""
    found = set()
    for rank in job.ranks():
        assert set(rank.uids()) == set(rank.gids()) == {ALICE}
        variables = rank.environ()
        found.add(variables["PLIANT_NODE"])
        namespace = job.site.network.namespace(variables["PLIANT_NODE"])
        own = os.stat(f"/proc/{rank.pid}/ns/net").st_ino
        assert own == os.stat(f"/run/netns/{namespace}").st_ino
    assert found == hosts


def test_a_job_of_alice_is_resized_across_hosts_and_bob_is_refused(site: SiteOfHosts) -> None:
    job = AliceJob(site)
    job.has(2)
    job.resize(4)
    check_ranks(job, set(NODES))
    job.resize(1)
    assert len({rank.environ()["PLIANT_NODE"] for rank in job.ranks()}) == 1
    job.resize(3)
    check_ranks(job, set(NODES))
    _check_bob(site, job.id)
    assert job.steps() > 0
    job.finish()
    found = job.output.stat()
    assert (found.st_uid, found.st_gid) == (ALICE, ALICE)
    assert "wrong" not in job.output.read_text()
    wait_until(lambda: site.jobs_folders() == [], what="the end of private folders")


def _check_bob(site: SiteOfHosts, job: int) -> None:
    bob = site.as_user(BOB)
    before = site.as_user(ALICE).job(job)
    for request in (bob.cancel, bob.suspend, bob.hold, bob.requeue, bob.why):
        with pytest.raises(RequestError):
            request(job)
    with pytest.raises(RequestError):
        bob.resize(job, 1)
    shown = bob.job(job)
    assert "of-alice" not in repr(shown)
    assert str(site.output) not in repr(shown)
    after = site.as_user(ALICE).job(job)
    assert (after.held, after.run, after.final) == (before.held, before.run, False)


def test_the_checkpoints_of_alice_are_removed_with_her_job(site: SiteOfHosts) -> None:
    job = AliceJob(site)
    job.has(2)

    def is_accepted() -> bool:
        with suppress(RequestError):  # the program has not registered, or it is being resized
            site.as_user(ALICE).suspend(job.id)
            return True
        return False

    wait_until(is_accepted, what="the suspension to begin", timeout=90, every=0.2)
    site.wait(ALICE, job.id, lambda state, _: state == "SUSPENDED", "its suspension")
    (saved,) = saves(site, job.id)
    assert saved.stat().st_uid == ALICE
    site.as_user(ALICE).resume_job(job.id)
    job.has(2)
    job.finish()
    wait_until(lambda: saves(site, job.id) == [], what="the end of its checkpoints")
    assert any("removing" in host.log() for host in site.hosts.values())


def saves(site: SiteOfHosts, job: int) -> list[Path]:
    """Return the folders of checkpoints of a job."""
    return list(site.checkpoints.glob(f"*.j{job}"))
