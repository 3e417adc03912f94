from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.afterwards import idle
from clusterkit.cluster import Cluster
from clusterkit.counter import Counter
from helperkit import Site


@pytest.fixture(scope="module")
def shared() -> Cluster | None:
    """Return the cluster that the tests of a module share; modules with one define it."""
    return None


@pytest.fixture
def cluster(shared: Cluster | None, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Return the cluster of the module, empty, or else a cluster of this test's own.

    The latter has four nodes with two slots each; only an operator resizes its jobs.
    """
    if shared is not None:
        yield shared
        idle(shared)
        return
    state_dir: Path = request.getfixturevalue("state_dir")
    own = Cluster(state_dir.parent, nodes=4, slots=2, strategy="fcfs")
    own.up()
    yield own
    idle(own)
    own.down()


@pytest.fixture
def counter(cluster: Cluster, tmp_path: Path) -> Counter:
    """Return a running counting program on two processors."""
    job = Counter(cluster, tmp_path / "counter")
    cluster.wait_malleable(job.id)
    return job


@pytest.fixture
def site() -> Iterator[Site]:
    """Return a server for all users, with one node that has a root helper."""
    made = Site()
    try:
        made.up()
        yield made
    finally:
        made.close()
