"""Collectives over worlds that were joined from several nodes: MPICH's own choices would hang."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from testkit import wait_until
from testkit.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.mpi]

APP = Path(__file__).parent / "apps" / "collectives.py"


def test_every_collective_returns_after_growth_and_shrinkage(
    cluster: Cluster, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    job = cluster.client.submit(
        sys.executable, str(APP), sizes="1-8", prefer=2, chdir=str(tmp_path), stdout=str(output)
    )
    cluster.wait_malleable(job)
    first = cluster.history(job, "job.started")[0].data["processors"][0]
    for size in (2, 1, 3, 5, 4):
        if size != 2:
            cluster.resize(job, size, [cluster.place(first)] if size == 1 else [])
        wait_until(lambda size=size: f"dup at {size}\n" in output.read_text())  # type: ignore[misc]
    cluster.client.cancel(job)
    assert cluster.client.wait(job).state == "CANCELLED"
