"""A cluster that the tests of a module share: bringing one up for each takes too long."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusterkit.afterwards import idle
from clusterkit.cluster import Cluster
from testkit import leaks


@contextmanager
def running_cluster(
    strategy: str,
    settings: str = "",
    nodes: int = 2,
    slots: int = 2,
    options: Sequence[str] = (),
    shape: Sequence[str] = (),
) -> Iterator[Cluster]:
    """Give a cluster of nodes with so many slots each, on which everything holds in the end.

    ``settings`` are those of its server, ``options`` those of the strategy, and
    ``shape`` more options of ``pliant up``.
    """
    base = Path(tempfile.mkdtemp(prefix="pliant-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLIANT_STATE_DIR", str(base / "state"))
        patch.setenv("PLIANT_RUN_DIR", str(base / "run"))
        cluster = Cluster(base, nodes=nodes, slots=slots, strategy=strategy)
        cluster.shape += shape
        for option in options:
            cluster.shape += ["--strategy-option", option]
        if settings:
            file = base / "server.yaml"
            file.write_text(settings)
            cluster.shape += ["--config", str(file)]
        cluster.up()
        leaks.SHARED.add(str(cluster.state))
        try:
            yield cluster
        finally:
            leaks.SHARED.remove(str(cluster.state))
        idle(cluster)
        cluster.down()
    shutil.rmtree(base)
