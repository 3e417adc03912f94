"""A cluster whose nodes have joined with certificates: jobs grow and shrink across the nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.counter import Counter
from tlskit.cluster import TlsCluster

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(state_dir: Path) -> Iterator[TlsCluster]:
    made = TlsCluster(state_dir.parent, {"n1": 2, "n2": 4})
    try:
        made.up()
        yield made
    finally:
        made.down()


def test_a_malleable_job_grows_and_shrinks_over_tls(cluster: TlsCluster, tmp_path: Path) -> None:
    job = Counter(cluster, tmp_path / "counter")
    cluster.wait_malleable(job.id)
    rank = cluster.ranks(job.id)[0].process.environ()
    assert rank["PLIANT_APPLICATION_ADDRESS"].startswith("127.0.0.1:")
    assert os.path.exists(rank["PLIANT_ROOTS_FILE"])
    assert "GRPC_SSL_CIPHER_SUITES" not in rank, "programs with gRPC of their own would suffer"
    cluster.resize(job.id, 6)
    assert {each.node for each in cluster.ranks(job.id)} == {"n1", "n2"}
    cluster.resize(job.id, 4, release=["n1"])
    assert {each.node for each in cluster.ranks(job.id)} == {"n2"}
    job.finish()
