"""Case 3: an order to start that one of the nodes never got, while the others obeyed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterkit.cluster import Cluster
from testkit import wait_until

pytestmark = pytest.mark.cluster

#: Nobody suspects a node that has gone before the job is started, however slow the machine is.
PATIENT = "lease_s: 60\nbeat_interval_s: 20\n"


@pytest.mark.case(3)
@pytest.mark.parametrize("cluster", [PATIENT], indirect=True, ids=["patient"])
def test_all_processes_run_although_some_have_ended_before_others_began(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A script, whose processes do not wait for each other."""
    cluster.kill("node-n2")
    file = tmp_path / "places"
    number = cluster.client.submit(
        "/bin/sh",
        "-c",
        f'echo "$PLIANT_PROCESSOR" >> {file}',
        sizes=4,
        type="mpi",
        stdout="/dev/null",
    )
    wait_until(lambda: cluster.client.job(number).state == "COMPLETING", what="n1 to be done")
    cluster.up()
    job = cluster.wait_for(number, lambda job: job.final, "its end")
    assert (job.state, job.exit_code) == ("COMPLETED", 0), cluster.report(number)
    assert sorted(file.read_text().split()) == ["0", "1", "2", "3"]
