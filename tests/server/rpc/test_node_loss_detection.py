from __future__ import annotations

from pliant.core.values.ids import NodeName
from pliant.server.rpc.node_loss_detection import Health, HeartbeatLeases

A, B = NodeName("a"), NodeName("b")


def test_a_stall_of_the_server_does_not_count_against_nodes() -> None:
    leases = HeartbeatLeases(beat_interval_s=2, lease_s=60)
    leases.open(A, 0)
    leases.open(B, 70)
    leases.extend(40, 71)
    assert leases.update_health(71) == [(A, Health.SUSPECT)]
    assert leases.beat(A, 72) is Health.SUSPECT
    assert leases.update_health(76.9) == []
    assert leases.update_health(77) == [(B, Health.SUSPECT)], "nobody is heard of in the future"


def test_leases_judge_by_silence() -> None:
    leases = HeartbeatLeases(beat_interval_s=2, lease_s=60)
    assert leases.next_deadline() is None
    leases.open(A, 0)
    assert leases.update_health(5.9) == []
    assert leases.next_deadline() == 6
    assert leases.update_health(6) == [(A, Health.SUSPECT)]
    assert leases.update_health(7) == []
    assert leases.next_deadline() == 60
    assert leases.beat(A, 8) is Health.SUSPECT
    assert leases.beat(A, 9) is Health.GOOD
    assert leases.update_health(70) == [(A, Health.LOST)]
    assert leases.beat(A, 71) is Health.LOST
    assert leases.update_health(200) == []
    assert leases.silent(A, 200)
    leases.open(A, 201)
    assert leases.beat(A, 202) is Health.GOOD
    assert leases.beat(B, 202) is None
