"""Kumar's profit strategies with real processes, and the same stream of jobs in the simulator."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusterkit.cluster import Cluster
from clusterkit.commands import run_command
from clusterkit.shared import running_cluster
from pliant.client.api import Job
from pliant.core.commands import Note
from pliant.core.values.profit_contract import contract_from_record
from pliant.core.values.sizes import parse_sizes
from pliant.simulator.inputs.settings import Settings
from pliant.simulator.inputs.workload import SimJob
from pliant.simulator.run.simulate import simulate

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

#: Seconds that the users expect, far above what the programs take: a slow machine must not matter.
ESTIMATE_S = 100.0
#: Runs until a file is there: jobs that are submitted meanwhile find it running.
PROGRAM = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


@dataclass(frozen=True)
class Decision:
    """What became of a job, and what the strategy said when it decided."""

    state: str
    said: str


def submit(folder: Path, sizes: str, deadline: str, profit: str) -> int:
    """Submit as a user does."""
    words = ["jobsub", "-n", sizes, "--estimate", f"{ESTIMATE_S:g}s", "--deadline", deadline]
    words += ["--profit", profit, "--parsable", sys.executable, "-c", PROGRAM]
    words.append(str(folder / "end"))
    done = run_command(*words, cwd=folder)
    assert done.code == 0, done
    return int(done.out)


def real_decisions(cluster: Cluster, numbers: Sequence[int]) -> list[Decision]:
    """Wait for the ends of jobs; return what was decided about them."""
    found = []
    for number in numbers:
        job = cluster.client.wait(number)
        accepted = [event.text for event in cluster.history(number, "job.accepted")]
        assert job.state in {"COMPLETED", "REJECTED"}, cluster.report(number)
        found.append(Decision(job.state, accepted[0] if accepted else job.reason))
    return found


def simulated_decisions(strategy: str, processors: int, jobs: Sequence[Job]) -> list[Decision]:
    """Return what the simulator decides about the same jobs, submitted at the same times."""
    accepted: dict[int, str] = {}

    def hear(note: Note) -> None:
        if note.kind == "job.accepted" and note.job is not None:
            accepted[note.job] = note.text

    made = []
    for job in jobs:
        size, assumed = int(job.sizes), job.contract
        assert assumed is not None
        took = 2.0 if job.start is None or job.end is None else job.end - job.start
        made.append(
            SimJob(
                job.id,
                (job.submit or 0.0) - (jobs[0].submit or 0.0),
                took * size,
                parse_sizes(job.sizes),
                size,
                ESTIMATE_S,
                contract=contract_from_record(assumed),
            )
        )
    result = simulate(made, Settings(processors, strategy=strategy), on_note=hear)
    records = {record.id: record for record in result.jobs}
    return [
        Decision(records[job.id].state.value, accepted.get(job.id, records[job.id].reason))
        for job in jobs
    ]


def in_time(job: Job) -> bool:
    """Whether a job that was accepted has kept its deadline."""
    assert job.deadline is not None
    return job.state == "REJECTED" or (job.end or 0.0) <= job.deadline


def test_profit_simple_decides_now_or_never(tmp_path: Path) -> None:
    with running_cluster("profit-simple", nodes=1, slots=4) as cluster:
        first = submit(tmp_path, "4", "10m", "1000")
        late = submit(tmp_path, "4", "5m", "1000")  # nothing is free, and nobody can give
        hopeless = submit(tmp_path, "1", "60s", "9")  # an estimate of 100 s
        shown = run_command("jobstat", str(first), str(late)).out
        assert "/1000" in shown
        assert "deadline cannot be met" in shown
        assert "promise: accepted" in run_command("jobctl", "why", str(first)).out
        (tmp_path / "end").touch()
        cluster.client.wait(first)
        side = [submit(tmp_path, "2", "10m", "10:soft=1:penalty=5") for _ in range(2)]
        numbers = [first, late, hopeless, *side]
        real = real_decisions(cluster, numbers)
        jobs = [cluster.client.job(number) for number in numbers]
        refused = Decision("REJECTED", "deadline cannot be met")
        good = Decision("COMPLETED", "accepted")
        assert real == [good, refused, refused, good, good]
        assert all(map(in_time, jobs))
        assert "brought a profit of 10" in run_command("jobctl", "why", str(side[0])).out
    assert simulated_decisions("profit-simple", 4, jobs) == real


def test_profit_lazy_puts_off_and_keeps_its_promise_over_a_crash(tmp_path: Path) -> None:
    with running_cluster("profit-lazy", nodes=1, slots=4) as cluster:
        first = submit(tmp_path, "4", "10m", "1000")
        later = submit(tmp_path, "4", "30m", "500")
        late = submit(tmp_path, "4", "5m", "1000")
        cluster.wait_for(late, lambda job: job.state == "REJECTED", "the late job is refused")
        cluster.kill("server")  # the promise must outlive it
        cluster.up()
        assert f"starts when job {first} ends" in cluster.client.job(later).promise
        (tmp_path / "end").touch()
        numbers = [first, later, late]
        real = real_decisions(cluster, numbers)
        jobs = [cluster.client.job(number) for number in numbers]
        assert [decision.state for decision in real] == ["COMPLETED", "COMPLETED", "REJECTED"]
        assert real[1].said == f"accepted; starts when job {first} ends"
        assert (jobs[1].start or 0.0) >= (jobs[0].end or 0.0)
        assert all(map(in_time, jobs))
    assert simulated_decisions("profit-lazy", 4, jobs) == real
