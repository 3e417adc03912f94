"""Local users: their load, their order, and what the scheduler shares with them."""

from __future__ import annotations

import itertools

import pytest

from pliant.simulator.multicluster.settings import LocalJob, LocalUsers
from pliant.simulator.multicluster.simulated_cluster import SimulatedCluster, local_jobs


def test_local_jobs_start_first_come_first_served() -> None:
    cluster = SimulatedCluster("a", 4)
    assert cluster.take(2)
    first, second = LocalJob(0, 3, 10), LocalJob(1, 1, 10)
    cluster.submit(first)
    cluster.submit(second)
    assert list(cluster.start_local_jobs(1)) == []
    assert not cluster.take(3)
    cluster.give_back(2)
    assert list(cluster.start_local_jobs(5)) == [first, second]
    assert (cluster.waits.jobs, cluster.waits.total_s) == (2, 5 + 4)


def test_a_failed_cluster_is_empty_when_it_returns() -> None:
    cluster = SimulatedCluster("a", 4)
    cluster.take(3)
    cluster.submit(LocalJob(0, 2, 10))
    cluster.fail()
    cluster.submit(LocalJob(1, 2, 10))
    assert (cluster.idle, cluster.take(1)) == (0, False)
    cluster.recover()
    assert (cluster.idle, list(cluster.start_local_jobs(2))) == (4, [])


def test_the_streams_have_the_load_that_is_asked_for() -> None:
    cluster = SimulatedCluster("a", 40)
    users = LocalUsers(load=0.6, run_s=100)
    jobs = list(itertools.islice(local_jobs(users, cluster, 1), 20_000))
    span = jobs[-1].submit - jobs[0].submit
    load = sum(job.processors * job.run_s for job in jobs) / (span * 40)
    assert load == pytest.approx(0.6, rel=0.1)
    assert all(1 <= job.processors <= 20 for job in jobs)
    again = list(itertools.islice(local_jobs(users, cluster, 1), 5))
    assert again == jobs[:5]
    assert list(local_jobs(LocalUsers(), cluster, 1)) == []
