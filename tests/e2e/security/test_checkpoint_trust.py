"""Another account plants the folder of a job's checkpoints: nothing in it is executed or used."""

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clusterkit.afterwards import idle
from clusterkit.cluster import Cluster
from clusterkit.shared import running_cluster
from pliant.server.authentication.app_tokens import AppTokens
from testkit import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.mpi,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second account"),
]

#: An account that is not this one.
STRANGER = 65534

PROGRAM = """
import os, sys, time
from pliant.appkit import malleable

@malleable(sizes="1-2")
def main(job):
    print(os.environ["PLIANT_CHECKPOINT"], flush=True)
    job.once(lambda: 1)
    state = job.state(count=0)
    for it in job.steps(int(sys.argv[1]), save_every=3):
        state.count += 1
        time.sleep(0.02)
    print("counted", state.count, os.environ["PLIANT_RUN"], flush=True)

main()
"""


class Marker:
    """Its pickle makes a folder when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.fixture(name="shared", scope="module")
def _shared() -> Iterator[tuple[Cluster, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="pliant-shared-"))
    folder.chmod(0o1777)
    with running_cluster("fcfs", f"checkpoints: {folder}\n") as cluster:
        yield cluster, folder
    shutil.rmtree(folder)


def submit(cluster: Cluster, folder: Path, steps: int) -> int:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    return cluster.client.submit(
        sys.executable,
        str(program),
        str(steps),
        type="mpi",
        stdout=str(folder / "out"),
    )


def forged(marker: Path) -> bytes:
    """Return a manifest as the format without signatures had it."""
    harmful = base64.b64encode(pickle.dumps(Marker(marker))).decode()
    body = json.dumps(
        {
            "format": 1,
            **dict.fromkeys(("number", "job", "run", "epoch", "size", "time", "loop"), 1),
            "iteration": 3,
            "registry": [["state", "count"]],
            "states": harmful,
            "once": [harmful],
            "pieces": [],
        }
    ).encode()
    return b"%08x\n" % zlib.crc32(body) + body


def plant(where: Path, seen_as: Path, manifest: bytes) -> None:
    """Have the other account put a manifest into a folder of its own, as far as it can."""
    script = """
        mkdir -p -m 777 "$1"; rm -f "$1/manifest.json"; cat > "$1/manifest.json"
        echo 99 > "$1/run"  # else the job would replace the manifest by its own
        [ "$1" = "$2" ] || ln -sfn "$1" "$2"
    """
    subprocess.run(
        ["/bin/sh", "-c", script, "sh", where, seen_as],
        input=manifest,
        user=STRANGER,
        group=STRANGER,
        extra_groups=[],
        check=True,
        cwd="/",
    )


def guessed_name(cluster: Cluster, earlier: Path, job: int) -> str:
    """Return the name of a job's folder, which only somebody with the cluster's key can know."""
    with closing(sqlite3.connect(cluster.state / "pliant.db")) as database:
        (key,) = database.execute("SELECT value FROM meta WHERE key = 'key'").fetchone()
    return f"{earlier.name.partition('_')[0]}_{AppTokens(bytes.fromhex(key)).checkpoint_name(job)}"


@pytest.mark.parametrize("way", ["folder", "link"])
def test_a_planted_checkpoint_is_not_executed(
    shared: tuple[Cluster, Path], tmp_path: Path, way: str
) -> None:
    cluster, base = shared
    first = submit(cluster, tmp_path, 1)
    cluster.wait_for(first, lambda job: job.final, "the first job to end")
    own = Path((tmp_path / "out").read_text().split()[0])
    victim = own.parent / f"{guessed_name(cluster, own, first + 1)}.j{first + 1}"
    marker = tmp_path / "executed"
    where = victim if way == "folder" else base / "theirs"
    plant(where, victim, forged(marker))

    number = submit(cluster, tmp_path, 10**6)
    assert number == first + 1
    out = tmp_path / "out"

    def tried() -> bool:
        return "no checkpoint was taken" in out.read_text() or [*where.glob("save-*")] != []

    wait_until(tried, what="an attempt to save")
    saved = [*where.glob("save-*")]
    plant(where, victim, forged(marker))
    cluster.client.requeue(number)
    job = cluster.wait_for(number, lambda job: job.final or job.run > 1, "the second run")
    wait_until(lambda: marker.exists() or cluster.client.job(number).final, what="the end")
    assert not marker.exists(), "the planted checkpoint was executed"
    assert not saved, "the job has written into the other account's folder"
    job = cluster.client.job(number)
    assert job.state == "FAILED"
    text = out.read_text()
    assert "CheckpointError" in text
    assert f"belongs to user {STRANGER}" in text or "is a link" in text
    idle(cluster)


def test_a_job_in_a_shared_folder_continues_from_its_own_checkpoint(
    shared: tuple[Cluster, Path], tmp_path: Path
) -> None:
    cluster, base = shared
    number = submit(cluster, tmp_path, 150)
    wait_until(lambda: [*base.glob(f"*.j{number}/manifest.json")] != [], what="a checkpoint")
    cluster.client.requeue(number)
    job = cluster.wait_for(number, lambda job: job.final, "the second run to end")
    assert job.state == "COMPLETED", job.reason
    assert "counted 150 2" in (tmp_path / "out").read_text()
    idle(cluster)
