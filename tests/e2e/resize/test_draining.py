"""Who refuses to leave a node that is drained: what follows is the policy's, with real programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusterkit.bargaining import Bargaining, finish
from clusterkit.cluster import Cluster
from clusterkit.shared import running_cluster
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(180)]

SETTINGS = "quiet_s: 1.0\nnegotiation: {{escalation: {}}}\n"
WHY = "a mandatory offer failed (refused: the program refused)"


@contextmanager
def refusal(escalation: str, folder: Path) -> Iterator[tuple[Cluster, Bargaining]]:
    """Give a job on two nodes that will not leave the one that is drained."""
    with running_cluster("equipartition", SETTINGS.format(escalation), nodes=2, slots=2) as cluster:
        job = Bargaining(cluster, folder / "job", "2-4", 4, fewer=False).up()
        job.goes_on()
        cluster.client.drain("n2", "repair")
        assert job.told(f"{WHY}: {escalation}").kind == "offer.escalated"
        asked = cluster.history(job.id, "offer.sent")[0].data["resize"]
        assert job.talk(asked)[:2] == [
            "offered 2 processors instead of 4 (to leave n2, which is being drained)",
            "the application answered REJECT: the program refused",
        ]
        assert "offer 4 -> 2, mandatory: False" in (job.folder / "out").read_text()
        yield cluster, job
        cluster.client.resume("n2")


def state(cluster: Cluster) -> tuple[str, int]:
    """Return the state of the node that is drained, and how many of its slots are held."""
    (node,) = [node for node in cluster.client.nodes() if node.name == "n2"]
    return node.state, node.used


def test_who_refuses_is_ended_where_that_is_the_rule(tmp_path: Path) -> None:
    with refusal("terminate", tmp_path) as (cluster, job):
        cluster.wait_for(job.id, lambda job: job.state == "FAILED", "its end")
        assert WHY in job.why()


def test_who_refuses_keeps_its_processors_and_is_asked_again(tmp_path: Path) -> None:
    with refusal("keep", tmp_path) as (cluster, job):
        cluster.wait_for(
            job.id, lambda _: len(cluster.history(job.id, "offer.escalated")) > 1, "another offer"
        )
        job.goes_on()
        job.has(4)
        assert cluster.client.job(job.id).run == 1
        assert state(cluster) == ("DRAINING", 2)
        finish(job)
        wait_until(lambda: state(cluster) == ("DRAINED", 0), what="the node to be empty")


def test_who_refuses_goes_on_elsewhere_from_where_it_was(tmp_path: Path) -> None:
    with refusal("requeue", tmp_path) as (cluster, job):
        before = job.steps()
        cluster.wait_for(job.id, lambda job: job.run == 2, "another run")
        job.has(2)
        assert cluster.client.job(job.id).nodes == ("n1",)
        job.goes_on()
        assert job.steps() > before
        finish(job)
