"""The order of the placement queue, and the limit of tries."""

from __future__ import annotations

from pliant.core.values.ids import JobId
from pliant.strategies.multicluster.placement_queue import PlacementQueue

ONE, TWO = JobId(1), JobId(2)


def test_a_job_that_failed_goes_to_the_tail_and_keeps_its_tries() -> None:
    queue = PlacementQueue(max_tries=1)
    queue.append(ONE)
    queue.append(TWO)
    assert not queue.count_failure(ONE)
    queue.remove(ONE)
    assert list(queue) == [TWO]
    queue.append(ONE)
    assert list(queue) == [TWO, ONE]
    assert queue.count_failure(ONE)
    assert queue.tries(ONE) == 2


def test_without_a_limit_no_job_is_given_up() -> None:
    queue = PlacementQueue()
    queue.append(ONE)
    assert not any(queue.count_failure(ONE) for _ in range(1000))
    queue.forget(ONE)
    assert (len(queue), queue.tries(ONE)) == (0, 0)
