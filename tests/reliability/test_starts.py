"""Case 3: an order to start that one of the nodes never got, while the others obeyed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit import wait_until
from testkit.cluster import Cluster

pytestmark = pytest.mark.cluster


#: Where this machine is so slow that the silence of n2 is noticed before the start: once more.
ATTEMPTS = 5


def stands_still(cluster: Cluster, number: int) -> str:
    """Wait until a job needs n2 to go on; its state."""

    def state() -> str:
        now = cluster.client.job(number).state
        return now if now in ("COMPLETING", "PENDING") else ""

    return wait_until(state)


def begun_without(cluster: Cluster, folder: Path) -> tuple[int, Path]:
    """Have the processes of a job run to their ends on n1, while n2 has never had its order."""
    for attempt in range(ATTEMPTS):
        cluster.kill("node-n2")
        file = folder / f"places{attempt}"
        number = cluster.client.submit(
            "/bin/sh",
            "-c",
            f'echo "$PLIANT_PROCESSOR" >> {file}',
            sizes=4,
            type="mpi",
            stdout="/dev/null",
        )
        if stands_still(cluster, number) == "COMPLETING":
            return number, file
        cluster.up()
        cluster.wait_for(number, lambda job: job.final, "the end of one that had waited")
    raise AssertionError(f"no start before the silence of n2 was noticed, {ATTEMPTS} times")


def test_case_3_all_processes_run_although_some_have_ended_before_others_began(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A script, whose processes do not wait for each other."""
    number, file = begun_without(cluster, tmp_path)
    cluster.up()
    job = cluster.wait_for(number, lambda job: job.final, "its end")
    assert (job.state, job.exit_code) == ("COMPLETED", 0), cluster.report(number)
    assert sorted(file.read_text().split()) == ["0", "1", "2", "3"]
