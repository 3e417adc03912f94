"""When processors are claimed, and which clusters make a claim fail."""

from __future__ import annotations

from pliant.core.values.ids import JobId
from pliant.strategies.multicluster.claiming import lacking, plan_claim
from pliant.strategies.multicluster.placement_rules import Part

JOB = JobId(1)
PARTS = [Part("a", 3), Part("b", 2), Part("a", 1)]


def test_processors_are_claimed_a_lead_time_before_the_start() -> None:
    claim = plan_claim(JOB, PARTS, 100.0, transfer_s=60.0, lead_s=15.0)
    assert (claim.at, claim.start) == (145.0, 160.0)
    assert plan_claim(JOB, PARTS, 100.0, transfer_s=5.0, lead_s=15.0).at == 100.0


def test_clusters_with_reservations_are_claimed_at_once() -> None:
    claim = plan_claim(JOB, PARTS, 100.0, transfer_s=60.0, lead_s=15.0, reserves=True)
    assert (claim.at, claim.start) == (100.0, 160.0)


def test_components_in_one_cluster_are_claimed_together() -> None:
    claim = plan_claim(JOB, PARTS, 0.0)
    assert claim.processors() == {"a": 4, "b": 2}
    assert lacking(claim, {"a": 4, "b": 2}) == []
    assert lacking(claim, {"a": 3, "b": 9}) == ["a"]


def test_a_cluster_that_cannot_be_reached_lacks_processors() -> None:
    assert lacking(plan_claim(JOB, PARTS, 0.0), {"a": 9}) == ["b"]
