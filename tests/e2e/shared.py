"""A cluster that the tests of a module share: bringing one up for each takes too long."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pliant.client.demo_checks import segments_of
from testkit import leaks, wait_until
from testkit.checker import settled
from testkit.cluster import Cluster, zombies_below

SHARED_MEMORY = Path("/dev/shm")


@contextmanager
def running_cluster(
    strategy: str, settings: str = "", nodes: int = 2, slots: int = 2
) -> Iterator[Cluster]:
    """Give a cluster of nodes with so many slots each; ``settings`` are those of its server."""
    base = Path(tempfile.mkdtemp(prefix="pliant-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLIANT_STATE_DIR", str(base / "state"))
        patch.setenv("PLIANT_RUN_DIR", str(base / "run"))
        cluster = Cluster(base, nodes=nodes, slots=slots, strategy=strategy)
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
        cluster.down()
    shutil.rmtree(base)


def idle(cluster: Cluster, keep: int | None = None) -> None:
    """Bring a cluster back to what it was before a test: whole, and empty but for one job.

    All processors are back, all that ran on them is collected, and its shared memory is gone.
    """
    if cluster.missing:
        cluster.up()
    others = [job.id for job in cluster.client.jobs() if not job.final and job.id != keep]
    if others:
        cluster.client.cancel(*others)
    left = 0 if keep is None else cluster.client.job(keep).held
    wait_until(lambda: sum(n.used for n in cluster.client.nodes()) == left, what="free nodes")
    daemons = list(cluster.daemons().values())
    wait_until(lambda: not zombies_below(daemons), what="no zombies")
    wait_until(lambda: not segments(cluster, keep), what="no segments")
    settled(cluster.state)


def segments(cluster: Cluster, keep: int | None = None) -> list[str]:
    """Return the shared memory that jobs have left behind."""
    kept = set[str]()
    if keep is not None:
        kept = segments_of(rank.process.pid for rank in cluster.ranks(keep))
    return [name for name in cluster.segments - kept if (SHARED_MEMORY / name).exists()]
