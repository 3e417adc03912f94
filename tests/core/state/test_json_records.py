"""What the database keeps: round trips through JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from corekit.rig import Rig
from pliant.core import events
from pliant.core.model.negotiation import Verb
from pliant.core.model.nodes import Node
from pliant.core.state.json_records import (
    job_from_record,
    job_to_record,
    node_from_record,
    node_to_record,
)
from pliant.core.values.ids import NodeName


def waiting(rig: Rig) -> None:
    rig.submit(1, "2-8:pow2", prefer=4, limit_s=50.0, held=True)


def in_talk(rig: Rig) -> None:
    rig.run(1, "1-8")
    rig.submit(2, "4")


def preparing(rig: Rig) -> None:
    in_talk(rig)
    rig.ask_for(1, 0)
    rig.answer(1, Verb.REJECT)
    rig.exit(1, 0, 1)


def going(rig: Rig) -> None:
    in_talk(rig)
    rig.shrink_to_go(1)
    rig.exit(1, 7)


def releasing(rig: Rig) -> None:
    going(rig)
    rig.decide(1)


def ended(rig: Rig) -> None:
    rig.run(1, "1-8")
    rig.exit(1, 0, code=3)
    rig.exit(1)


@pytest.mark.parametrize("way", [waiting, in_talk, preparing, going, releasing, ended])
def test_a_job_comes_back_as_it_was(way: Callable[[Rig], None]) -> None:
    rig = Rig({"n1": 4, "n2": 4})
    way(rig)
    for job in rig.core.jobs.values():
        record = job_to_record(job)
        again = job_from_record(json.loads(json.dumps(record)))
        assert job_to_record(again) == record
        again.connected = job.connected
        if again.resize and job.resize:
            again.resize.negotiation = job.resize.negotiation
        assert again == job


def test_a_node_comes_back_as_it_was() -> None:
    rig = Rig({"n1": 4})
    rig.do(events.NodeDrained(NodeName("n1"), "new fan"))
    node = rig.core.nodes[NodeName("n1")]
    assert node_from_record(json.loads(json.dumps(node_to_record(node)))) == node


def test_a_record_of_a_time_before_drains_were_kept_can_be_read() -> None:
    record = node_to_record(Node(NodeName("n1"), 0, 4))
    del record["drained"]
    assert node_from_record(record).drained == ""


def test_records_keep_the_keys_of_earlier_versions() -> None:
    """`stored_records.json` was written at commit fb104f1, with every field set."""
    stored = json.loads(Path(__file__).with_name("stored_records.json").read_text())
    job, node = job_from_record(stored["job"]), node_from_record(stored["node"])
    assert json.loads(json.dumps(job_to_record(job))) == stored["job"]
    assert json.loads(json.dumps(node_to_record(node))) == stored["node"]
