"""Case 54: strings that would be SQL, and numbers that begin like others."""

from __future__ import annotations

import pytest

from clusterkit.cluster import Cluster
from pliant.client.client_errors import RequestError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

NAMES = ["x'; DROP TABLE job; --", "%", "_", 'a" OR 1=1', "1) UNION SELECT * FROM meta --", "\\"]


@pytest.mark.case(54)
def test_strings_are_values_and_numbers_are_exact(cluster: Cluster) -> None:
    client = cluster.client
    assert client.submit("true", hold=True, stdout="/dev/null") == 1
    jobs = {
        client.submit("true", name=name, stdout="/dev/null", env={"PATH": "/bin", "X": name}): name
        for name in NAMES * 2
    }
    assert max(jobs) >= 10  # which begins with 1
    client.cancel(1)
    for number, name in jobs.items():
        cluster.wait_for(number, lambda job: job.final, f"job {number} to end")
        assert (client.job(number).name, client.job(number).state) == (name, "COMPLETED")
        assert {event.job for event in client.history(number)} == {number}
    assert [job.id for job in client.jobs([1])] == [1]
    with pytest.raises(RequestError):
        client.job(100)
