from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.client.commands.gantt import main
from pliant.client.terminal.gantt import allocations, gantt_svg, node_rows, runs

SVG = "{http://www.w3.org/2000/svg}"
NODES = [{"name": "n1", "slots": 4}, {"name": "n2", "slots": 4}]


def event(time: float, job: int, kind: str, **data: Any) -> dict[str, Any]:
    return {"seq": 0, "time": time, "job": job, "kind": kind, "text": "", "data": data}


STORY = [
    event(0.0, 1, "job.submitted"),
    event(1.0, 1, "job.started", processors=[0, 1, 2, 3, 4, 5, 6, 7]),
    event(5.0, 1, "job.resized", processors=[0, 1, 6, 7]),
    event(5.1, 2, "job.started", processors=[2, 3, 4, 5]),
    event(9.0, 2, "job.ended", state="COMPLETED"),
    event(12.0, 1, "job.ended", state="COMPLETED"),
]


def test_allocations_follow_from_the_events() -> None:
    found = [(a.job, a.start, a.end, len(a.processors), a.resized) for a in allocations(STORY)]
    assert found == [(1, 1.0, 5.0, 8, False), (1, 5.0, 12.0, 4, True), (2, 5.1, 9.0, 4, False)]


def test_what_still_runs_goes_on_to_the_end() -> None:
    (only,) = allocations(STORY[:2], end=8.0)
    assert only.end == 8.0


def test_a_job_that_is_started_again_has_two() -> None:
    events = [event(t, 1, "job.started", processors=[0]) for t in (1.0, 2.0)]
    assert len(allocations(events, end=3.0)) == 2


def test_the_picture_has_a_rectangle_for_each_block_of_processors() -> None:
    picture = gantt_svg(STORY, NODES, names={1: "<heat> & \x1b[1m", 2: "rigid"}, title='a "b"')
    root = ElementTree.fromstring(picture)
    groups = root.findall(f"{SVG}g[@class='allocation']")
    assert [len(group.findall(f"{SVG}rect")) for group in groups] == [1, 2, 1]
    assert len(root.findall(f".//{SVG}path[@class='resize']")) == 2
    assert [text.text for text in root.findall(f"{SVG}text[@class='legend']")] == [
        "1 <heat> & \\x1b[1m",
        "2 rigid",
    ]


def test_rows_follow_the_processors_of_the_nodes() -> None:
    nodes = [{"name": "b", "slots": 2, "first": 4}, {"name": "a", "slots": 4, "first": 0}]
    assert [(row.name, row.first) for row in node_rows(nodes)] == [("a", 0), ("b", 4)]
    left = node_rows(NODES, [3, 9, 10])[-1]
    assert (left.name, left.first, left.slots) == ("?", 9, 2)


@given(st.sets(st.integers(0, 50)))
def test_runs_hold_every_number_once(numbers: set[int]) -> None:
    found = list(runs(sorted(numbers)))
    assert [n for first, count in found for n in range(first, first + count)] == sorted(numbers)
    assert all(first + count < after for (first, count), (after, _) in pairwise(found))


@st.composite
def stories(draw: Callable[[Any], Any]) -> list[dict[str, Any]]:
    steps = draw(
        st.lists(
            st.tuples(
                st.floats(0, 1e6),
                st.integers(1, 5),
                st.sampled_from(["job.started", "job.resized", "job.ended", "offer.sent"]),
                st.sets(st.integers(0, 11)),
            )
        )
    )
    times = sorted(step[0] for step in steps)
    return [
        event(1e9 + time, job, kind, processors=sorted(processors))
        for time, (_, job, kind, processors) in zip(times, steps, strict=True)
    ]


@given(stories(), st.dictionaries(st.integers(1, 5), st.text()))
def test_any_story_is_drawn(events: list[dict[str, Any]], names: dict[int, str]) -> None:
    root = ElementTree.fromstring(gantt_svg(events, NODES, names=names))
    spans = allocations(events)
    groups = root.findall(f"{SVG}g[@class='allocation']")
    assert [int(group.attrib["data-job"]) for group in groups] == [span.job for span in spans]
    for group in groups:
        assert group.findall(f"{SVG}rect")
        for rect in group.findall(f"{SVG}rect"):
            assert float(rect.attrib["width"]) > 0
            assert float(rect.attrib["height"]) > 0


@pytest.mark.parametrize("span", [1e-6, 0.3, 7.0, 59.0, 240.0, 1e4, 1e6, 1e9])
def test_the_axis_has_a_few_round_moments(span: float) -> None:
    events = [event(0.0, 1, "job.started", processors=[0]), event(span, 1, "job.ended")]
    root = ElementTree.fromstring(gantt_svg(events, NODES[:1]))
    labels = root.findall(f"{SVG}text[@text-anchor='middle']")
    assert 2 <= len(labels) <= 12


def test_a_job_that_is_not_there(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers["jobs"] = {"jobs": [{"id": 1, "name": "heat"}], "missing": [9]}
    assert main(["1", "9"]) == 1
    assert capsys.readouterr() == ("", "pliant gantt: there is no job 9\n")


def test_a_file_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, says in [
        ("none/g.svg", f"the directory {tmp_path}/none does not exist; mkdir -p it"),
        (".", "is a directory; name a file in it"),
    ]:
        assert main(["-o", str(tmp_path / name)]) == 1
        assert says in capsys.readouterr().err


def test_the_command_draws_the_jobs_that_are_named(
    server: Any, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers |= {"history": {"events": STORY}, "nodes": {"nodes": NODES}}
    server.answers["jobs"] = {"jobs": [{"id": 1, "name": "heat"}, {"id": 2, "name": "b"}]}
    assert main(["-o", str(tmp_path / "g.svg"), "2"]) == 0
    root = ElementTree.fromstring((tmp_path / "g.svg").read_text())
    assert len(root.findall(f"{SVG}g")) == 1
    assert main([]) == 0
    assert ElementTree.fromstring(capsys.readouterr().out).tag == f"{SVG}svg"
