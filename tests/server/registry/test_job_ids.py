"""Case 18: numbers of jobs are given once, also when a database has lost jobs that nodes know."""

from __future__ import annotations

import re

import pytest

from pliant.core.events import LiveWorld, NodeRegistered
from pliant.core.values.ids import JobId, NodeName, ResizeId
from pliant.core.values.processors import from_indices
from pliant.server.registry.job_ids import MAX_LOST_IDS, JobIdAllocator


def node(*jobs: int) -> NodeRegistered:
    worlds = tuple(LiveWorld(JobId(job), 1, ResizeId(0), from_indices([0]), True) for job in jobs)
    return NodeRegistered(NodeName("n1"), 4, worlds=worlds)


def test_a_number_that_a_node_knows_is_not_given_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    numbers = JobIdAllocator(5)
    numbers.on_node_registered(node(5, 8, 7))
    assert numbers.next() == 9
    assert "processes of job 8, which the job database does not know" in caplog.text
    assert caplog.text.count("does not know") == 2


@pytest.mark.parametrize("order", [(6, 8), (8, 6)])
def test_each_lost_job_is_told_once_in_any_order(
    order: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    numbers = JobIdAllocator(5)
    for job in (*order, *order):
        numbers.on_node_registered(node(job))
    assert re.findall(r"job (\d+), which", caplog.text) == [str(job) for job in order]
    assert numbers.next() == 9


def test_numbers_that_were_given_here_are_no_loss(caplog: pytest.LogCaptureFixture) -> None:
    numbers = JobIdAllocator(5)
    given = numbers.next()
    numbers.on_node_registered(node(given + 2))
    caplog.clear()
    numbers.on_node_registered(node(given, numbers.next()))
    assert caplog.text == ""


def test_after_an_old_copy_the_jobs_since_then_are_lost_and_not_given_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    numbers = JobIdAllocator(1, 1 + MAX_LOST_IDS)
    numbers.on_node_registered(node(1, 2))
    assert "processes of job 2," in caplog.text
    assert caplog.text.count("does not know") == 1
    assert numbers.next() == 2 + MAX_LOST_IDS


def test_what_is_known_is_no_loss(caplog: pytest.LogCaptureFixture) -> None:
    numbers = JobIdAllocator(5)
    numbers.on_node_registered(node(1, 5))
    assert (numbers.next(), caplog.text) == (6, "")


def test_an_id_that_cannot_have_been_assigned_is_rejected() -> None:
    numbers = JobIdAllocator(5)
    numbers.on_node_registered(node(5 + MAX_LOST_IDS + 1, 2**63))
    assert numbers.next() == 6


def test_nodes_cannot_move_the_numbers_again_and_again() -> None:
    numbers = JobIdAllocator(5)
    for step in range(1, 5):
        numbers.on_node_registered(node(5 + step * MAX_LOST_IDS))
    assert numbers.next() == 6 + MAX_LOST_IDS
