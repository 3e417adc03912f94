"""Clusters of these tests' own, with short leases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from clusterkit.afterwards import idle
from clusterkit.cluster import Cluster
from clusterkit.logs import Logs

SETTINGS = {"debug": True, "lease_s": 8, "beat_interval_s": 0.5, "kill_grace_s": 0.5}


@pytest.fixture
def cluster(state_dir: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Return a cluster of two nodes with two slots each; a node silent for 8 s is lost.

    The fixture's parameter has other settings of its server, as YAML.
    """
    settings = state_dir.parent / "server.yaml"
    changed = yaml.safe_load(getattr(request, "param", "{}"))
    settings.write_text(yaml.safe_dump(SETTINGS | changed))
    cluster = Cluster(state_dir.parent, nodes=2, slots=2, strategy="fcfs")
    cluster.shape += ["--config", str(settings)]
    cluster.up()
    yield cluster
    idle(cluster)
    cluster.down()
    Logs(cluster.state).check()
