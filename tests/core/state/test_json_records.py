"""What the database keeps: round trips through JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corekit.rig import Rig
from pliant.core import events
from pliant.core.model.negotiation import Verb
from pliant.core.model.nodes import Node
from pliant.core.model.resize import ResizeStage
from pliant.core.state.json_records import (
    job_from_record,
    job_to_record,
    node_from_record,
    node_to_record,
)
from pliant.core.values.ids import NodeName

#: How a resize without an open proposal is stored.
NO_PROPOSAL = {"until": 0.0, "not_before": 0.0, "price": 0.0}


def read(name: str) -> Any:
    """Return the content of a file of this folder."""
    return json.loads(Path(__file__).with_name(name).read_text())


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
    """`stored_records.json` was written at commit fb104f1, with every field set.

    Its resize is in stage "go" and has values of other stages, too. They are ignored.
    """
    stored = read("stored_records.json")
    job, node = job_from_record(stored["job"]), node_from_record(stored["node"])
    others: dict[str, Any] = {"begun": None, "preparing": [], "reason": ""} | NO_PROPOSAL
    later: dict[str, Any] = {"account": "", "hold": False, "phase_since": stored["job"]["since"]}
    later |= {"dependencies": "", "dependencies_now": "", "warning": None, "warned_run": 0}
    later |= {"comment": "", "components": [], "begin": None}
    expected = stored["job"] | {"resize": stored["job"]["resize"] | others} | later
    assert json.loads(json.dumps(job_to_record(job))) == expected
    assert list(job_to_record(job)["resize"]) == list(stored["job"]["resize"])
    assert json.loads(json.dumps(node_to_record(node))) == stored["node"]


def test_components_are_stored() -> None:
    job = job_from_record(read("stored_records.json")["job"])
    spec = replace(job.spec, components=(4, 2))
    stored = json.loads(json.dumps(job_to_record(replace(job, spec=spec))))
    assert job_from_record(stored).spec.components == (4, 2)


@pytest.mark.parametrize("stage", ResizeStage)
def test_resizes_of_earlier_versions_are_read_in_every_stage(stage: ResizeStage) -> None:
    """`stored_resizes.json` was written by runs of the core at commit 9e9635e."""
    job = read("stored_records.json")["job"]
    stored = next(one for one in read("stored_resizes.json") if one["stage"] == stage)
    expected = dict(stored)
    if stage is not ResizeStage.NEGOTIATING:  # the proposal is no longer open
        expected["until"] = 0.0
    if stage is ResizeStage.RELEASING:  # data are no longer moving
        expected["begun"] = None
    read_again = job_from_record(job | {"resize": stored})
    assert job_to_record(read_again)["resize"] == expected
