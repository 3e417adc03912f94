"""Nodes at several sites: placement, growth within a site, components, and a lost site."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from clusterkit.cluster import Cluster
from clusterkit.commands import run_command
from clusterkit.counter import Counter
from clusterkit.shared import running_cluster
from pliant.strategies.multicluster.placement_rules import place_components
from testkit.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(600)]

#: Each node has two processors.
SITES = {"delft": ["n1", "n2"], "leiden": ["n3"], "mmn": ["n4"]}
SHAPE = ["--sites", "delft:2,leiden:1,mmn:1"]
#: Runs until a file is there.
WAIT = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.05)"


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with running_cluster(
        "egs+pwa",
        "lease_s: 8.0\nbeat_interval_s: 0.25\n",
        nodes=4,
        slots=2,
        options=("threshold=1",),
        shape=SHAPE,
    ) as cluster:
        yield cluster


class Site:
    """What a user of the cluster sees of its sites."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._ends: dict[int, Path] = {}

    def submit(self, components: Sequence[int]) -> int:
        """Submit a job that runs until it is told to end."""
        end = self._folder / f"end-{len(self._ends)}"
        words = (sys.executable, "-c", WAIT, str(end))
        job = self._cluster.client.submit(*words, stdout="/dev/null", components=components)
        self._ends[job] = end
        return job

    def end(self, job: int) -> None:
        """Let a job end, and wait until its processors are free."""
        self._ends.pop(job).touch()
        self._cluster.wait_for(job, lambda found: found.final, "its end")
        wait_until(lambda: job not in self.holders(), what=f"the processors of job {job}")

    def holders(self) -> set[int]:
        return {job for node in self._cluster.client.nodes() for job in node.jobs}

    def end_all(self) -> None:
        for job in list(self._ends):
            self.end(job)

    def processors(self, job: int) -> dict[str, int]:
        """Return how many processes a job has at each site."""
        ranks = [rank.node for rank in self._cluster.ranks(job)]
        counts = {name: sum(ranks.count(node) for node in SITES[name]) for name in SITES}
        return {name: number for name, number in counts.items() if number}

    def wait_for_processes(self, job: int, number: int) -> dict[str, int]:
        self._cluster.wait_for(job, lambda found: found.state == "RUNNING", "RUNNING")
        wait_until(lambda: sum(self.processors(job).values()) == number, what=f"{number} processes")
        return self.processors(job)


@pytest.fixture
def sites(shared: Cluster, tmp_path: Path) -> Site:
    return Site(shared, tmp_path)


def test_the_nodes_of_a_site_are_shown_with_it(shared: Cluster) -> None:
    shown = {node.name: node.cluster for node in shared.client.nodes()}
    assert shown == {node: name for name, nodes in SITES.items() for node in nodes}


def test_real_jobs_go_where_the_placement_policy_of_the_simulator_sends_them(
    sites: Site, shared: Cluster
) -> None:
    rng = Random(5)
    idle = {name: 2 * len(nodes) for name, nodes in SITES.items()}
    running: dict[int, dict[str, int]] = {}
    placed = refused = 0
    for _ in range(14):
        components = [rng.choice((1, 2, 3)) for _ in range(rng.choice((1, 1, 2)))]
        parts = place_components("wf", components, idle)
        job = sites.submit(components)
        if parts is None:
            refused += 1
            shared.wait_for(job, lambda found: "at least" in found.reason, "why it waits")
            shared.client.cancel(job)
            shared.wait_for(job, lambda found: found.final, "its end")
            for oldest in list(running)[:1]:
                sites.end(oldest)
                for name, number in running.pop(oldest).items():
                    idle[name] += number
            continue
        expected: dict[str, int] = {}
        for name, number in parts:
            expected[name] = expected.get(name, 0) + number
            idle[name] -= number
        assert sites.wait_for_processes(job, sum(components)) == expected
        running[job] = expected
        placed += 1
    assert placed > 5
    assert refused > 1
    sites.end_all()


def test_growth_stays_in_the_site_and_leaves_the_threshold(
    shared: Cluster, sites: Site, tmp_path: Path
) -> None:
    counter = Counter(shared, tmp_path / "counter", sizes="1-6", prefer=1)
    shared.wait_malleable(counter.id)
    shared.wait_for(counter.id, lambda job: job.processors == 3, "3 processors")
    assert sites.wait_for_processes(counter.id, 3) == {"delft": 3}
    # Another user of delft takes its last processor, and one more makes the job shrink.
    fillers = [sites.submit([2]), sites.submit([2])]
    assert [sites.wait_for_processes(job, 2) for job in fillers] == [{"leiden": 2}, {"mmn": 2}]
    last = sites.submit([2])
    assert sites.wait_for_processes(last, 2) == {"delft": 2}
    shared.wait_for(counter.id, lambda job: job.processors <= 2, "to shrink")
    sites.end_all()
    counter.finish()


def test_a_component_that_no_site_can_hold_waits_with_the_reason(
    shared: Cluster, sites: Site
) -> None:
    job = sites.submit([5, 1])
    found = shared.wait_for(job, lambda found: "largest cluster" in found.reason, "its reason")
    assert "component of 5" in found.reason
    assert "component of 5" in run_command("jobctl", "why", str(job)).out
    shared.client.cancel(job)
    shared.wait_for(job, lambda found: found.final, "its end")


def test_a_job_with_components_at_a_lost_site_releases_the_other_sites(
    shared: Cluster, sites: Site
) -> None:
    both = sites.submit([4, 2])
    assert sites.wait_for_processes(both, 6) == {"delft": 4, "leiden": 2}
    late = sites.submit([4])
    shared.kill("node-n3")
    wait_until(
        lambda: shared.client.job(both).final, timeout=120, what="the job at the lost site to end"
    )
    assert shared.client.job(both).state == "NODE_FAIL"
    assert sites.wait_for_processes(late, 4) == {"delft": 4}
    shared.up()
    sites.end(late)
