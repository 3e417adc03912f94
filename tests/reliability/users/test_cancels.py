"""Case 63: many users' cancellations at once, each twice, of jobs in every state."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from clusterkit.checker import settled
from clusterkit.cluster import Cluster
from pliant.client.api import Client
from pliant.client.client_errors import RequestError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

JOBS, USERS = 60, 4
#: What jobs do: end at once, soon, or not by themselves; on one node or on both.
PROGRAMS = [("true", "1"), ("sleep 0.2", "1"), ("sleep 600", "1"), ("sleep 600", "3")]


def cancel(cluster: Cluster, jobs: list[int]) -> None:
    """Cancel one after the other; those that have ended say so."""
    with Client(str(cluster.run)) as client:
        for job in jobs:
            try:
                client.cancel(job)
            except RequestError as error:
                if "has already ended" not in str(error):
                    raise


@pytest.mark.case(63)
def test_a_storm_of_cancellations_leaves_one_end_of_each(cluster: Cluster) -> None:
    chance = random.Random(63)
    jobs: list[int] = []
    with ThreadPoolExecutor(USERS) as pool:
        storms = []
        for turn in range(JOBS):
            program, sizes = PROGRAMS[turn % len(PROGRAMS)]
            words = ("/bin/sh", "-c", program)
            held, kind = chance.random() < 0.2, "uni" if sizes == "1" else "mpi"
            jobs.append(
                cluster.client.submit(*words, sizes=sizes, type=kind, hold=held, stdout="/dev/null")
            )
            if turn % 10 == 9:
                orders = [chance.sample(jobs[-10:], 10) for _ in range(2)]
                storms += [pool.submit(cancel, cluster, order) for order in orders]
        for storm in storms:
            storm.result(120)
    for job in jobs:
        cluster.wait_for(job, lambda job: job.final, f"the end of job {job}")
    assert {cluster.client.job(job).state for job in jobs} <= {"CANCELLED", "COMPLETED"}
    ends = [event.job for event in cluster.client.history() if event.kind == "job.ended"]
    assert sorted(job for job in ends if job is not None) == jobs
    settled(cluster.state)
