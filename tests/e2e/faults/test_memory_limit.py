"""A job that uses more memory than it asked for ends for this reason, and leaves no group."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.afterwards import idle
from clusterkit.cluster import Cluster
from pliant.nodectl.host import cgroup
from pliant.nodectl.host.cgroup_hierarchies import base
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

MEBIBYTE = 1 << 20
#: Ranks of a world that differ in what they use.
UNEVEN = f"""
import os
from mpi4py import MPI
block = bytearray((300 if MPI.COMM_WORLD.rank else 1) * {MEBIBYTE})
MPI.COMM_WORLD.Barrier()
"""


@pytest.fixture
def cluster(state_dir: Path) -> Iterator[Cluster]:
    cluster = Cluster(state_dir.parent, nodes=1, slots=2, strategy="fcfs")
    cluster.up()
    yield cluster
    idle(cluster)
    cluster.down()


def groups() -> list[str]:
    where = base("memory")
    folder = where.folder if where is not None else ""
    names = os.listdir(folder) if folder else []
    return [name for name in names if name.startswith(cgroup.JOB_PREFIX)]


@pytest.mark.mpi
def test_a_job_that_uses_more_memory_than_it_asked_for_ends_for_this_reason(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Both ranks together may have twice what each asked for."""
    before = groups()
    program = tmp_path / "uneven.py"
    program.write_text(UNEVEN)
    fails, fits = (
        cluster.client.submit(
            sys.executable, str(program), sizes=2, mem_per_cpu=memory, stdout="/dev/null"
        )
        for memory in ("160M", "400M")
    )
    ended = cluster.wait_for(fails, lambda job: job.final, "the end of the job")
    assert ended.state == "FAILED"
    assert "out of memory (limit 320 MiB on node n1)" in ended.reason
    assert cluster.wait_for(fits, lambda job: job.final, "the end").state == "COMPLETED"
    wait_until(lambda: groups() == before, what="the end of the group")
