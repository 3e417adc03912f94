"""A cluster that the tests of a module share: bringing one up for each takes too long."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testkit import wait_until
from testkit.cluster import Cluster, zombies_below


@contextmanager
def running_cluster(strategy: str, settings: str = "") -> Iterator[Cluster]:
    """Give a cluster of two nodes with two slots each; ``settings`` are those of its server."""
    base = Path(tempfile.mkdtemp(prefix="pliant-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLIANT_STATE_DIR", str(base / "state"))
        patch.setenv("PLIANT_RUN_DIR", str(base / "run"))
        cluster = Cluster(base, nodes=2, slots=2, strategy=strategy)
        if settings:
            file = base / "server.yaml"
            file.write_text(settings)
            cluster.shape += ["--config", str(file)]
        cluster.up()
        yield cluster
        cluster.down()
    shutil.rmtree(base)


def idle(cluster: Cluster) -> None:
    """Wait until all processors are back and all that ran on them is collected."""
    wait_until(lambda: not any(node.used for node in cluster.client.nodes()), what="free nodes")
    daemons = list(cluster.daemons().values())
    wait_until(lambda: not zombies_below(daemons), what="no zombies")
