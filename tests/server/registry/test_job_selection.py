"""Selections find the same jobs as a look at all of them, and look at no more than they must."""

from __future__ import annotations

import pytest

from pliant.core.model.jobs import Job, JobSpec, JobType
from pliant.core.model.lifecycle import JobState
from pliant.core.values.ids import JobId
from pliant.core.values.sizes import Sizes
from pliant.server.registry.job_selection import JobSelection
from pliant.server.registry.status_cache import ENDED_JOBS_KEPT_S, StatusCache


def make_job(number: int, user: str, state: JobState, name: str) -> Job:
    spec = JobSpec(JobId(number), name, user, JobType.MPI, Sizes((1,)), 0.0)
    return Job(spec, state, end=100.0 if state is JobState.FAILED else None)


@pytest.fixture
def status() -> StatusCache:
    cache = StatusCache()
    states = (JobState.PENDING, JobState.HELD, JobState.FAILED)
    for number in range(1, 91):
        user = "ann" if number % 10 else "bob"
        cache.publish_jobs([make_job(number, user, states[number % 3], f"sim{number % 5}")])
    return cache


def selected(status: StatusCache, selection: JobSelection) -> list[int]:
    patterns = selection.patterns
    found = status.candidates(selection)
    return [entry.info["id"] for entry in found if selection.selects(entry.info, patterns)]


SELECTIONS = [
    JobSelection(),
    JobSelection(ended_since=50.0),
    JobSelection(ended_since=200.0),
    JobSelection(users=frozenset({"bob"})),
    JobSelection(users=frozenset({"bob", "eve"}), ended_since=0.0),
    JobSelection(states=frozenset({"HELD"})),
    JobSelection(states=frozenset({"FAILED", "HELD"}), ended_since=0.0),
    JobSelection(names=frozenset({"sim[12]", "*4"})),
    JobSelection(frozenset({"bob"}), frozenset({"PENDING"}), frozenset({"sim0"})),
    JobSelection(users=frozenset({"nobody"})),
]


@pytest.mark.parametrize("selection", SELECTIONS, ids=range(len(SELECTIONS)))
def test_the_index_finds_all_jobs_that_are_wanted(
    status: StatusCache, selection: JobSelection
) -> None:
    patterns = selection.patterns
    every = status.entries(ended_since=0.0)
    expected = [e.info["id"] for e in every if selection.selects(e.info, patterns)]
    assert selected(status, selection) == expected


def test_jobs_of_others_are_not_looked_at(status: StatusCache) -> None:
    assert len(status.candidates(JobSelection(users=frozenset({"bob"})))) < 10
    assert status.candidates(JobSelection(users=frozenset({"nobody"}))) == []


def test_jobs_move_between_states_and_are_forgotten(status: StatusCache) -> None:
    status.publish_jobs([make_job(1, "ann", JobState.PENDING, "sim1")])
    assert 1 in selected(status, JobSelection(states=frozenset({"PENDING"})))
    assert 1 not in selected(status, JobSelection(states=frozenset({"HELD"})))
    status.drop_old(100.0 + ENDED_JOBS_KEPT_S + 1.0)
    assert selected(status, JobSelection(states=frozenset({"FAILED"}), ended_since=0.0)) == []
