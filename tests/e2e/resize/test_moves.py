"""A strategy moves a malleable job: it grows onto the other node, and leaves its old one."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.counter import Counter
from clusterkit.shared import running_cluster
from testkit.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(600)]

#: Moves jobs with one processor from the first node to the second one.
STRATEGY = """
from dataclasses import replace
from pliant.core.model.views_and_plans import Migration
from pliant.core.values.processors import lowest
from pliant.strategies.queueing import Composed


class Mover(Composed):
    def allocate_processors(self, view):
        first, second = view.nodes
        free = view.free & second.processors
        moves = [
            Migration(job.id, lowest(free, 1), "said the test")
            for job in view.running
            if job.migratable and job.malleable and job.held & first.processors and free
        ]
        return replace(super().allocate_processors(view), migrations=tuple(moves[:1]))
"""


def test_a_malleable_job_moves_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs.py").write_text(STRATEGY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with running_cluster("theirs:Mover", nodes=2, slots=1) as cluster:
        job = Counter(cluster, tmp_path / "job", sizes="1-2", prefer=1)
        wait_until(lambda: cluster.history(job.id, "job.moved"), what="the end of the move")
        (moved,) = cluster.history(job.id, "job.moved")
        sources, targets = moved.data["sources"], moved.data["targets"]
        assert moved.data["by"] == "growth"
        assert {*sources, *targets} == {"n1", "n2"}
        assert moved.data["bytes"] > 0
        assert [rank.node for rank in cluster.ranks(job.id)] == targets
        why = "\n".join(cluster.client.why(job.id).text)
        assert f"it was moved from {sources[0]} to {targets[0]} (said the test)" in why
        job.finish()
        kinds = [event.kind for event in cluster.client.history(job.id)]
        assert kinds.count("job.started") == 1
        assert kinds.count("job.resized") == 2
        assert "job.saved" not in kinds
