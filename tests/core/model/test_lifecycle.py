"""The table of a job's life: every pair is listed or refused; the diagram shows all of it."""

from __future__ import annotations

from itertools import product

import pytest

from pliant.core.model.jobs import HISTORY_LENGTH, HistoryEntry, Job, JobSpec, JobType
from pliant.core.model.lifecycle import (
    ACTIVE_STATES,
    FINAL_STATES,
    RESIZABLE_STATES,
    TRANSITIONS,
    IllegalStepError,
    JobState,
    diagram,
)
from pliant.core.values.ids import JobId
from pliant.core.values.sizes import parse_sizes


def job(state: JobState, *story: HistoryEntry) -> Job:
    spec = JobSpec(JobId(7), "j", "ann", JobType.MPI, parse_sizes("1"), 0.0)
    made = Job(spec, state)
    made.history += story
    return made


@pytest.mark.parametrize(("start", "finish"), list(product(JobState, JobState)))
def test_every_step_is_listed_or_refused_with_the_story(start: JobState, finish: JobState) -> None:
    if (start, finish) in TRANSITIONS:
        stepped = job(start)
        stepped.step(finish, "a reason", 1.0)
        assert stepped.state is finish
        return
    with pytest.raises(IllegalStepError) as caught:
        job(start, HistoryEntry(1.0, JobState.PENDING, "submitted")).step(finish, "a reason", 2.0)
    assert f"job 7: {start} -> {finish}" in str(caught.value)
    assert "submitted" in str(caught.value)
    assert (caught.value.job, caught.value.start, caught.value.finish) == (7, start, finish)


def test_a_story_may_be_empty() -> None:
    with pytest.raises(IllegalStepError, match="its history: empty"):
        job(JobState.COMPLETED).step(JobState.RUNNING, "a reason", 1.0)


def test_nothing_follows_a_final_state_and_all_others_lead_to_one() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] in FINAL_STATES]
    reach = set(FINAL_STATES)
    while new := {a for a, b in TRANSITIONS if b in reach} - reach:
        reach |= new
    assert reach == set(JobState)


def test_processors_are_held_until_the_processes_are_gone() -> None:
    for start, finish in TRANSITIONS:
        if start in ACTIVE_STATES and finish in FINAL_STATES:
            assert start is JobState.COMPLETING
    assert RESIZABLE_STATES < ACTIVE_STATES


def test_the_diagram_shows_every_step_and_every_end() -> None:
    lines = [line.strip() for line in diagram().splitlines()]
    assert lines[0] == "stateDiagram-v2"
    for (start, finish), cause in TRANSITIONS.items():
        assert f"{start} --> {finish}: {cause}" in lines
    for state in JobState:
        assert (f"{state} --> [*]" in lines) == (state in FINAL_STATES)


def test_a_jobs_story_is_kept_short() -> None:
    spec = JobSpec(JobId(1), "j", "ann", JobType.MPI, parse_sizes("4"), 0.0)
    job = Job(spec, JobState.PENDING)
    for turn in range(HISTORY_LENGTH):
        job.step(JobState.HELD, f"held {turn}", 1.0)
        job.step(JobState.PENDING, f"free {turn}", 2.0)
    assert len(job.history) == HISTORY_LENGTH
    assert job.history_lines()[-1] == f"2.000 PENDING: free {HISTORY_LENGTH - 1}"
    with pytest.raises(IllegalStepError):
        job.step(JobState.RUNNING, "no", 3.0)
    assert job.state is JobState.PENDING
