"""The checker of the invariants sees each of them broken, and nothing in what is whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clusterkit.checker import violations
from clusterkit.evidence import EventRow, Evidence, JobRow, NodeRow, RankProcess, SpooledWorld

STORY = ("0.1 PENDING: submitted", "0.2 STARTING: starts", "0.3 RUNNING: runs")
ENDED = (*STORY, "0.4 COMPLETING: ends", "0.5 COMPLETED: ended")


def job(number: int, state: str = "RUNNING", held: tuple[int, ...] = (), **more: Any) -> JobRow:
    story = ENDED if state == "COMPLETED" else STORY
    record = {"held": held, "ranks": held or (2, 3), "story": story, "reason": ""}
    record["name"] = f"job{number}"
    code = 0 if state == "COMPLETED" else None
    return replace(JobRow(number, 7, state, 1, 1, f"key{number}", code, record), **more)


def record(of: JobRow, **changes: Any) -> JobRow:
    return replace(of, record={**of.record, **changes})


def world(number: int, processors: tuple[int, ...], ended: tuple[int, ...] = ()) -> SpooledWorld:
    ranks = tuple(enumerate(processors))
    return SpooledWorld("n1", f"w{number}", number, 1, ranks, frozenset(ended))


WHOLE = Evidence(
    integrity="ok",
    generation=2,
    jobs={1: job(1, held=(0, 1)), 2: job(2, "COMPLETED")},
    nodes={"n1": NodeRow("n1", 0, 2), "n2": NodeRow("n2", 2, 2)},
    events=[
        EventRow(1, "job.started", {"epoch": 1}),
        EventRow(2, "job.started", {"epoch": 1}),
        EventRow(2, "job.ended", {}),
        EventRow(1, "job.resized", {"epoch": 2}),
    ],
    codes={(2, 1): {2: 0, 3: 0}},
    worlds=[world(1, (0, 1)), world(2, (2,), ended=(0,))],
    generations={"n1": 2},
    processes=[RankProcess(100, 7, 1, 1, 0)],
)
ACKNOWLEDGED = [(1, "job1"), (2, "job2")]


def with_job(changed: JobRow) -> Evidence:
    return replace(WHOLE, jobs={**WHOLE.jobs, changed.id: changed})


def failed(code: int, ends: dict[int, int | None], run: int = 1) -> Evidence:
    """Job 2 has failed with a code; all that is told of its ends."""
    changed = job(2, "COMPLETED", exit_code=code, run=run)
    story = (*ENDED[:-1], "0.5 FAILED: exit code 3 on n2/1")
    told = record(replace(changed, state="FAILED"), story=story, reason="exit code 3 on n2/1")
    events = [*WHOLE.events, EventRow(2, "job.failed", {})]
    return replace(with_job(told), events=events, codes={(2, 1): ends, (2, 2): {2: 2, 3: 2}})


BROKEN = {
    "lost": (replace(WHOLE, jobs={1: WHOLE.jobs[1]}, events=WHOLE.events[:1]), "I1"),
    "doubled": (with_job(job(3, held=(), key="key1")), "I1"),
    "another": (with_job(record(WHOLE.jobs[1], name="else")), "I1"),
    "a second one": (with_job(record(job(3), name="job1")), "I1"),
    "given twice": (with_job(job(3, held=(1,))), "I2"),
    "held after the end": (with_job(job(2, "COMPLETED", held=(3,))), "I2"),
    "ledgers differ": (replace(WHOLE, worlds=[world(1, (0, 3))]), "I2"),
    "a former run": (with_job(job(1, held=(0, 1), run=2)), "I2"),
    "two worlds": (replace(WHOLE, worlds=[world(1, (0,)), world(1, (0, 1))]), "I2"),
    "two ends": (replace(WHOLE, events=[*WHOLE.events, EventRow(2, "job.ended", {})]), "I3"),
    "no end": (replace(WHOLE, events=WHOLE.events[:2]), "I3"),
    "an early end": (replace(WHOLE, events=[*WHOLE.events, EventRow(1, "job.ended", {})]), "I3"),
    "untrue code": (replace(WHOLE, codes={(2, 1): {2: 0, 3: 3}}), "I3"),
    "killed, not told": (replace(WHOLE, codes={(2, 1): {2: None}}), "I3"),
    "a code of nobody": (failed(4, {2: 0, 3: 3}), "I3"),
    "a code of an earlier run": (failed(3, {2: 3, 3: 3}, run=2), "I3"),
    "no code": (failed(0, {2: 0, 3: 0}), "I3"),
    "no reason": (with_job(record(job(2, "FAILED"), story=(*STORY, "0.4 FAILED: "))), "I3"),
    "left behind": (replace(WHOLE, processes=[RankProcess(9, 7, 2, 1, 0)]), "I4"),
    "unknown": (replace(WHOLE, processes=[RankProcess(9, 7, 5, 1, 0)]), "I4"),
    "elsewhere": (replace(WHOLE, processes=[RankProcess(9, 7, 1, 1, 3)]), "I4"),
    "a dead run": (replace(WHOLE, processes=[RankProcess(9, 7, 1, 0, 0)]), "I4"),
    "damaged": (replace(WHOLE, integrity="row 3 missing"), "I5"),
    "a leap": (with_job(record(WHOLE.jobs[1], story=(STORY[0], STORY[2]))), "I5"),
    "untold": (with_job(record(WHOLE.jobs[1], story=STORY[:2])), "I5"),
    "nodes overlap": (
        replace(WHOLE, nodes={**WHOLE.nodes, "n3": NodeRow("n3", 3, 2)}),
        "I6",
    ),
    "stands in for none": (
        replace(WHOLE, nodes={**WHOLE.nodes, "s1": NodeRow("s1", 4, 2, "UP", "n2")}),
        "I6",
    ),
    "stand in together": (
        replace(
            WHOLE,
            nodes={
                "n1": WHOLE.nodes["n1"],
                "n2": NodeRow("n2", 2, 2, "LOST"),
                "s1": NodeRow("s1", 4, 2, "UP", "n2"),
                "s2": NodeRow("s2", 6, 2, "UP", "n2"),
            },
        ),
        "I6",
    ),
    "no such processor": (with_job(job(1, held=(0, 1, 7))), "I6"),
    "another user": (replace(WHOLE, processes=[RankProcess(100, 0, 1, 1, 0)]), "I8"),
    "epochs": (
        replace(WHOLE, events=[*WHOLE.events, EventRow(1, "job.resized", {"epoch": 2})]),
        "I9",
    ),
    "generations": (replace(WHOLE, generations={"n1": 3}), "I9"),
}


def test_what_is_whole_is_not_complained_of() -> None:
    assert violations(WHOLE, ACKNOWLEDGED) == []


@pytest.mark.parametrize(
    "ends",
    [{2: 0, 3: 3}, {2: 3, 3: 7}, {2: 3}, {2: 7, 3: None}],
    ids=["its own", "a later one is higher", "one is unknown", "one was killed"],
)
def test_a_code_that_may_be_true_is_not_complained_of(ends: dict[int, int | None]) -> None:
    assert violations(failed(3, ends), ACKNOWLEDGED) == []


def test_who_fails_for_what_no_process_did_has_a_code_of_its_own() -> None:
    found = failed(1, {2: 0, 3: 0})
    assert violations(replace(found, events=WHOLE.events), ACKNOWLEDGED) == []


def test_each_run_of_a_job_counts_its_epochs() -> None:
    again = [EventRow(1, "job.queued", {"run": 2}), EventRow(1, "job.started", {"epoch": 1})]
    found = replace(WHOLE, events=[*WHOLE.events, *again])
    assert not [each for each in violations(found, ACKNOWLEDGED) if each.startswith("I9")]


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_seen(name: str) -> None:
    found, invariant = BROKEN[name]
    assert any(each.startswith(f"{invariant}: ") for each in violations(found, ACKNOWLEDGED))
