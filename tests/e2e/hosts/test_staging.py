"""Staged files on hosts that share nothing, and for users of a root helper."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helperkit import ALICE, BOB, needs_root
from helperkit.helper import ACCOUNT
from helperkit.identity import acting_as
from helperkit.site import Site
from netkit.network import Network, NetworkError
from pliant.client.client_errors import RequestError
from pliant.nodectl.shim.staging.staged_folder import WORK
from testkit.waiting import wait_until
from tlskit.cluster import ApartTlsCluster

pytestmark = [needs_root, pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(400)]

NODES = {"n1": 2, "n2": 2}

#: Each rank needs a staged module and writes a file; the job ends when the user's file appears.
PROGRAM = """
import os, sys, time
import numpy as np
from pliant.appkit import malleable
import helper_module

@malleable(sizes="1-4")
def main(job):
    job.on_offer(lambda _: True)
    for _ in job.steps(10**9):
        rank = job.comm.rank
        if not os.path.exists(f"part{rank}"):
            with open(f"part{rank}", "w") as file:
                file.write(helper_module.TEXT + os.environ["PLIANT_NODE"])
        time.sleep(0.02)
        if job.comm.bcast(os.path.exists(sys.argv[1]) if rank == 0 else None):
            break

main()
"""


class HostsWithoutSharedFolders(ApartTlsCluster):
    """A cluster whose hosts have a folder for staged files each, as hosts with a /tmp each do."""

    def _inside(self, name: str) -> list[str]:
        own = self.base / f"tmp-{name}"
        own.mkdir(mode=0o700, exist_ok=True)
        shared = f"/tmp/pliant-stage-{os.getuid()}"
        mount = f'mkdir -p -m 700 {shared}; mount --bind {own} {shared}; exec "$@"'
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh"]
        return [*super()._inside(name), *words]


@pytest.fixture
def cluster(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApartTlsCluster]:
    network = Network(list(NODES), "10.77.0")
    try:
        network.up()
    except NetworkError as error:
        pytest.skip(f"a network cannot be made here: {error}")
    monkeypatch.delenv("FI_TCP_IFACE", raising=False)  # each node finds its own interface
    made = HostsWithoutSharedFolders(state_dir.parent, network, NODES)
    try:
        made.up()
        yield made
    finally:
        made.down()
        network.down()


def test_a_growth_brings_the_files_to_another_host(
    cluster: ApartTlsCluster, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "program.py").write_text(PROGRAM)
    (work / "helper_module.py").write_text("TEXT = 'staged '\n")
    stop = tmp_path / "stop"
    words = ["-n", "1-4", "--prefer", "2", "--stage", ".", sys.executable, "program.py", str(stop)]
    done = subprocess.run(
        [sys.executable, "-m", "pliant.client.commands.jobsub", *words],
        cwd=work,
        env={**os.environ, "PLIANT_RUN_DIR": str(cluster.run)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    number = int(done.stdout)
    cluster.wait_malleable(number)
    assert len(cluster.client.job(number).nodes) == 1
    cluster.resize(number, 4)
    assert len(cluster.client.job(number).nodes) == 2
    folders = [cluster.base / f"tmp-{name}" for name in NODES]
    for folder in folders:
        wait_until(lambda: list(folder.glob(f"*/{WORK}/part*")), what="ranks on both hosts")  # noqa: B023
    stop.touch()
    job = cluster.wait_for(number, lambda each: each.final, "the end")
    assert job.state == "COMPLETED", (job, (work / f"pliant-{number}.out").read_text())
    found = {(work / f"part{rank}").read_text() for rank in range(4)}
    assert found == {"staged n1", "staged n2"}
    assert not any(list(folder.iterdir()) for folder in folders)


def test_files_of_a_user_are_written_as_the_user(site: Site) -> None:
    work = site.output / "alice"
    work.mkdir(mode=0o700)
    (work / "in.txt").write_text("of alice\n")
    (work / "job.sh").write_text(
        "#!/bin/sh\npwd; id -u; ls -ldn .; cat in.txt; umask 077\n>r.dat\n"
    )
    for path in (work, *work.iterdir()):
        os.chown(path, ALICE, ALICE)
    environment = {
        **os.environ,
        "PLIANT_RUN_DIR": str(site.users),
        "PLIANT_SERVER_USER": str(ACCOUNT),
    }
    done = subprocess.run(
        [
            site.python,
            "-m",
            "pliant.client.commands.jobsub",
            "--wait",
            "--stage",
            "in.txt",
            "job.sh",
        ],
        cwd=work,
        env=environment,
        user=ALICE,
        group=ALICE,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr + site.report(0, 1)
    where, uid, folder, text = (work / "pliant-1.out").read_text().splitlines()
    assert (uid, text) == (str(ALICE), "of alice")
    assert where.startswith(f"/tmp/pliant-stage-{ALICE}/")
    assert folder.startswith("drwx------")
    assert not Path(where).exists()
    assert (work / "r.dat").stat().st_uid == ALICE
    with acting_as(0), pytest.raises(RequestError, match="belongs to"):
        site.as_user(BOB)._link.request("outputs", id=1)
