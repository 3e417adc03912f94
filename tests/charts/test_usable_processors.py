"""How many processors were usable over time."""

from __future__ import annotations

from typing import Any

from pliant.charts.usable_processors import UsableProcessors


def event(time: float, kind: str, **data: Any) -> dict[str, Any]:
    return {"time": time, "kind": kind, "job": None, "data": data}


def test_nodes_come_and_go() -> None:
    usable = UsableProcessors()
    for each in (
        event(10, "node.registered", node="n1", slots=4, state="UP"),
        event(20, "node.registered", node="n2", slots=2, state="UP"),
        event(30, "node.state", node="n1", state="LOST"),
        event(40, "node.state", node="n1", state="UP"),
        event(50, "node.removed", node="n2"),
        event(60, "job.started"),
    ):
        usable.apply(each)
    assert usable.steps(0) == [(0, 0), (10, 4), (20, 6), (30, 2), (40, 6), (50, 4)]
    assert usable.steps(35) == [(35, 2), (40, 6), (50, 4)]


def test_a_node_that_was_there_before_the_history() -> None:
    usable = UsableProcessors()
    usable.set_nodes([{"name": "n1", "slots": 4, "state": "UP"}])
    assert usable.steps(0) == [(0, 4)]
    usable.apply(event(5, "node.state", node="n1", state="DRAINED"))
    usable.apply(event(6, "node.state", node="n1", state="DRAINED"))
    assert usable.steps(0) == [(0, 4), (5, 0)]


def test_the_first_line_tells_what_a_node_was() -> None:
    usable = UsableProcessors()
    usable.apply(event(5, "node.state", node="n1", state="LOST"))
    usable.apply(event(9, "node.state", node="n1", state="UP"))
    usable.set_nodes([{"name": "n1", "slots": 4, "state": "UP"}])
    assert usable.steps(0) == [(0, 4), (5, 0), (9, 4)]


def test_lines_that_arrive_after_the_nodes_count() -> None:
    usable = UsableProcessors()
    usable.set_nodes([{"name": "n1", "slots": 4, "state": "UP"}])
    usable.apply(event(5, "node.registered", node="n1", slots=4, state="UP"))
    assert usable.steps(0) == [(0, 0), (5, 4)]
