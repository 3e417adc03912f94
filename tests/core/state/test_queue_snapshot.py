"""Copies of the queue for simulations: what they hold, and what others may see of it."""

from __future__ import annotations

from corekit.rig import Rig
from pliant.core import events
from pliant.core.state.queue_snapshot import PRIVATE, job_rows, take_snapshot
from pliant.core.values.ids import JobId


def test_a_snapshot_has_running_and_waiting_jobs_and_counts_others() -> None:
    rig = Rig({"n1": 4, "n2": 4})
    rig.run(1, "2-4", "2-4")
    rig.settle()
    rig.submit(2, "8", estimate_s=60.0)
    rig.submit(3, "1", dependency="afterok:1")
    rig.submit(4, "1", held=True)
    rig.submit(5, "1", begin=rig.now + 60)
    rig.wait(10)
    copied = take_snapshot(rig.core.state, rig.now)
    rows = {row["id"]: row for row in job_rows(copied, None)}
    assert set(rows) == {1, 2, 5}
    assert rows[1]["malleable"]
    assert rows[1]["ranks"] == list(rig.job(1).ranks)
    assert rows[1]["done"] == 10 * rig.job(1).size
    assert (rows[2]["ranks"], rows[2]["estimate_s"], rows[2]["start"]) == ([], 60.0, None)
    assert rows[5]["arrival"] == rig.job(5).spec.begin
    assert copied.left_out == {"held": 1, "suspended": 0, "dependent": 1, "ending": 0}
    assert [(node["name"], node["first"], node["slots"]) for node in copied.nodes] == [
        ("n1", 0, 4),
        ("n2", 4, 4),
    ]


def test_later_changes_do_not_change_a_snapshot() -> None:
    rig = Rig({"n1": 4})
    rig.submit(1, "2")
    rig.up(1)
    copied = take_snapshot(rig.core.state, rig.now)
    before = list(job_rows(copied, None))
    rig.do(events.JobCancelled(JobId(1), "ann"))
    rig.exit(1)
    assert list(job_rows(copied, None)) == before


def test_private_values_of_others_are_blank() -> None:
    rig = Rig({"n1": 4})
    rig.submit(1, "2", account="secret")
    copied = take_snapshot(rig.core.state, rig.now)
    (own,) = job_rows(copied, rig.job(1).spec.uid)
    (others,) = job_rows(copied, rig.job(1).spec.uid + 1)
    assert own["account"] == "secret"
    assert {name: others[name] for name in PRIVATE} == PRIVATE
