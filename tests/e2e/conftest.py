from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.afterwards import idle
from testkit.cluster import Cluster
from testkit.counter import Counter


@pytest.fixture
def cluster(state_dir: Path) -> Iterator[Cluster]:
    """Return a cluster of four nodes with two slots each; only an operator resizes its jobs."""
    cluster = Cluster(state_dir.parent, nodes=4, slots=2, strategy="fcfs")
    cluster.up()
    yield cluster
    idle(cluster)
    cluster.down()


@pytest.fixture
def counter(cluster: Cluster, tmp_path: Path) -> Counter:
    """Return a running counting program on two processors."""
    job = Counter(cluster, tmp_path / "counter")
    cluster.wait_malleable(job.id)
    return job
