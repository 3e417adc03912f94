"""Cases 46 and 49: children and output in masses."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from clusterkit.cluster import Cluster, zombies_below

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

CHILDREN, LINES = 3000, 20_000_000
MEBIBYTE = 1 << 20
#: What one more child may cost a daemon, seconds of processor time.
PER_CHILD_S = 0.0002


@pytest.mark.case(46)
def test_thousands_of_short_children_leave_no_zombies(cluster: Cluster) -> None:
    before = spent(cluster)
    # Each is an orphan at once: nobody but the shim can collect it.
    script = f"i=0; while [ $i -lt {CHILDREN} ]; do (true & ) ; i=$((i+1)); done"
    job = cluster.client.submit("/bin/sh", "-c", script, stdout="/dev/null")
    ended = cluster.wait_for(job, lambda job: job.final, "the job to end")
    assert (ended.state, ended.exit_code) == ("COMPLETED", 0)
    assert zombies_below(list(cluster.daemons().values())) == []
    cost = {name: spent(cluster)[name] - before.get(name, 0.0) for name in spent(cluster)}
    assert max(cost.values()) < CHILDREN * PER_CHILD_S, cost


@pytest.mark.case(49)
def test_large_output_does_not_pass_through_the_daemons(cluster: Cluster, tmp_path: Path) -> None:
    output = tmp_path / "out"
    before = memory(cluster)
    job = cluster.client.submit(
        "/bin/sh", "-c", f"yes | head -n {LINES}; printf '\\0'", stdout=str(output)
    )
    ended = cluster.wait_for(job, lambda job: job.final, "the job to end")
    assert ended.state == "COMPLETED"
    assert output.stat().st_size == 2 * LINES + 1
    grown = {name: memory(cluster)[name] - before[name] for name in before}
    assert max(grown.values()) < 8 * MEBIBYTE, grown


def spent(cluster: Cluster) -> dict[str, float]:
    """Return the seconds of processor time of each daemon, and of the shims below each launcher."""
    found = {}
    for name, process in cluster.daemons().items():
        members = [process, *(process.children() if name.startswith("launcher") else [])]
        times = [member.cpu_times() for member in members]
        found[name] = sum(each.user + each.system for each in times)
    return found


def memory(cluster: Cluster) -> dict[str, int]:
    return {name: resident(process) for name, process in cluster.daemons().items()}


def resident(process: psutil.Process) -> int:
    return int(process.memory_info().rss)
