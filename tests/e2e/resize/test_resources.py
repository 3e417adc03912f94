"""Named resources with real jobs: they wait for them, negotiate about them and give them back."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.bargaining import Bargaining
from clusterkit.cluster import Cluster
from clusterkit.commands import run_command
from clusterkit.shared import running_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(300)]

#: Runs until a file is there.
WAIT = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)"


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with running_cluster("equipartition", "resources: {lic: 4}\n", slots=4) as cluster:
        yield cluster


def until(cluster: Cluster, file: Path, resource: str) -> int:
    """Submit a job of one processor that uses a resource until a file is there."""
    return cluster.client.submit(
        sys.executable, "-c", WAIT, str(file), type="uni", resources=[resource], stdout="/dev/null"
    )


def free() -> int:
    """Return how much is free, as ``nodestat`` tells it."""
    done = run_command("nodestat")
    (line,) = [line for line in done.out.splitlines() if line.startswith("resources: ")]
    used, _, total = line.removeprefix("resources: lic ").removesuffix(" used").partition(" of ")
    return int(total) - int(used)


def test_a_job_gets_what_others_leave_and_says_how_much_it_takes(
    shared: Cluster, tmp_path: Path
) -> None:
    first = until(shared, tmp_path / "first", "lic=2")
    shared.wait_for(first, lambda job: job.state == "RUNNING", "RUNNING")
    answers = {"more": {"resources": {"lic": 1}}}
    job = Bargaining(shared, tmp_path / "job", "1-8", 2, ["lic=1/proc"], **answers).up()
    assert free() == 0
    (tmp_path / "first").touch()
    job.prints("offer 2 -> 4 with 2 of lic")
    job.prints("offer 3 -> 4 with 1 of lic")  # it took one of them
    job.has(4)
    assert free() == 0
    second = until(shared, tmp_path / "second", "lic=2")
    shared.wait_for(
        second, lambda found: found.reason == "waits for 2 of resource lic", "its reason"
    )
    told = run_command("jobctl", "why", str(second)).out
    assert "it needs resource lic=2; 0 of 4 are free" in told
    shared.client.resize(job.id, 2)
    shared.wait_for(second, lambda found: found.state == "RUNNING", "RUNNING")
    job.prints("offer 4 -> 2 with 2 of lic")
    (shown,) = json.loads(run_command("jobstat", "--json", str(job.id)).out)
    assert shown["resources"] == ["lic=1/proc"]
    (tmp_path / "second").touch()
    shared.client.wait(second)
    job.say("stop")
    assert shared.client.wait(job.id).state == "COMPLETED"


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--resource", "gpu=1"], "the cluster has no resource 'gpu' (it has lic)"),
        (["--resource", "lic=5"], "can never be satisfied, the cluster has 4; ask for at most 4"),
        (["-n", "3-8", "--resource", "lic=2/proc"], "6 on 3 processors can never be satisfied"),
        (["--resource", "lic"], "'lic' is not a resource with an amount; write NAME=AMOUNT"),
    ],
)
def test_what_can_never_be_had_is_refused(words: list[str], told: str) -> None:
    done = run_command("jobsub", *words, "true")
    assert done.code in {1, 2}
    assert done.err.startswith("jobsub: resource: ")
    assert told in done.err
