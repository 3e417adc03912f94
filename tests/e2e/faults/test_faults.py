"""Malleable programs that fail, die, do not answer: they harm themselves at most."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusterkit.afterwards import idle
from clusterkit.cluster import Cluster
from clusterkit.counter import Counter
from clusterkit.shared import running_cluster
from pliant.client.api import Job
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.mpi, pytest.mark.timeout(180)]

FAULTY = Path(__file__).parents[1] / "apps" / "faulty.py"

SETTINGS = """
offer_timeout_s: 3
safe_point_timeout_s: 4
kill_grace_s: 1
quiet_s: 600
"""


@pytest.fixture(name="other", scope="module")
def _other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counter]:
    """Return a job on the cluster of this module that no test must disturb."""
    with running_cluster("fcfs", SETTINGS) as cluster:
        other = Counter(cluster, tmp_path_factory.mktemp("faults") / "other", sizes="1", prefer=1)
        cluster.wait_malleable(other.id)
        yield other
        other.finish()


@pytest.fixture
def cluster(other: Counter) -> Iterator[Cluster]:
    """Return the cluster of this module, on which another job runs."""
    yield other.cluster
    idle(other.cluster, keep=other.id)
    assert other.cluster.client.job(other.id).state == "RUNNING"


@pytest.fixture
def counter(cluster: Cluster, tmp_path: Path) -> Counter:
    """Return the counting program on two processors; a third one is free."""
    job = Counter(cluster, tmp_path / "counter", sizes="1-3")
    cluster.wait_malleable(job.id)
    return job


def faulty(cluster: Cluster, folder: Path, fault: str, sizes: str = "1-3") -> int:
    prefer = 2 if sizes == "1-3" else None
    command = (sys.executable, str(FAULTY), str(folder), fault)
    return cluster.client.submit(*command, sizes=sizes, prefer=prefer, chdir=str(folder))


def end(cluster: Cluster, number: int) -> Job:
    return cluster.wait_for(number, lambda job: job.final, f"job {number} to end")


def wait_note(cluster: Cluster, number: int, kind: str) -> None:
    wait_until(lambda: cluster.history(number, kind), what=f"{kind} of job {number}")


def why(cluster: Cluster, number: int) -> str:
    """Ask without a command, which a loaded machine may start after what is asked about."""
    return "\n".join(cluster.client.why(number).text)


# -------------------------------------------------------------------- it fails


def test_a_program_that_raises(cluster: Cluster, tmp_path: Path) -> None:
    number = faulty(cluster, tmp_path, "raise")
    job = end(cluster, number)
    assert (job.state, job.exit_code) == ("FAILED", 1)
    assert "ValueError: the eleventh step is too much" in Path(job.stdout).read_text()
    assert "aborted with code 1 (ValueError: the eleventh step is too much)" in job.reason


def test_a_hook_that_raises_is_named(cluster: Cluster, tmp_path: Path) -> None:
    number = faulty(cluster, tmp_path, "hook")
    cluster.wait_malleable(number)
    cluster.client.resize(number, 1)
    job = end(cluster, number)
    assert (job.state, job.exit_code) == ("FAILED", 1)
    named = "KeyError: 'no such field'; raised by the before_resize hook 'die' at a change from 2"
    assert named in job.reason
    assert "on_offer can" in why(cluster, number)
    output = Path(job.stdout).read_text()
    assert "raised by the before_resize hook 'die'" in output


def test_sizes_that_do_not_meet(cluster: Cluster, tmp_path: Path) -> None:
    job = end(cluster, faulty(cluster, tmp_path, "sizes=4-8", sizes="1-3"))
    assert job.state == "FAILED"
    assert job.reason == "no size suits both: submitted with 1-3, the program allows 4-8"


def test_a_program_may_catch_the_exception_that_ends_a_leaving_rank(
    cluster: Cluster, tmp_path: Path
) -> None:
    number = faulty(cluster, tmp_path, "swallow")
    cluster.wait_malleable(number)
    cluster.resize(number, 1)
    cluster.resize(number, 3)
    (tmp_path / "stop").touch()
    job = end(cluster, number)
    assert (job.state, job.exit_code) == ("COMPLETED", 0), cluster.report(number)
    assert Path(job.stdout).read_text() == "swallowed JobLeave\n"


def test_an_end_while_an_offer_is_open(cluster: Cluster, counter: Counter) -> None:
    counter.shut("hold-offer")
    cluster.client.resize(counter.id, 3)
    counter.finish()
    assert cluster.history(counter.id, "offer.sent")
    assert not cluster.history(counter.id, "job.resized")


def test_an_end_while_joining_ranks_start(cluster: Cluster, counter: Counter) -> None:
    counter.shut("hold-join")
    cluster.client.resize(counter.id, 3)
    wait_until(lambda: len(cluster.ranks(counter.id)) == 3, what="a joining rank")
    counter.finish()


# -------------------------------------------------------------------- it dies


@pytest.mark.parametrize(("rank", "size"), [(0, 3), (1, 1)])
def test_a_rank_that_is_killed_after_go(
    cluster: Cluster, counter: Counter, rank: int, size: int
) -> None:
    ranks = cluster.ranks(counter.id)
    counter.shut("hold")
    cluster.client.resize(counter.id, size)
    wait_note(cluster, counter.id, "resize.go")
    ranks[rank].process.send_signal(signal.SIGKILL)
    job = end(cluster, counter.id)
    assert (job.state, job.signal) == ("FAILED", signal.SIGKILL)
    assert "killed by signal 9" in job.reason
    assert "(stage go)" in job.reason


@pytest.mark.case(40)
@pytest.mark.parametrize(
    ("fault", "size"), [("die=0", 3), ("die=1", 3), ("die=leaver", 1), ("die=stayer", 1)]
)
def test_a_rank_that_dies_in_the_resize(
    cluster: Cluster, tmp_path: Path, fault: str, size: int
) -> None:
    number = faulty(cluster, tmp_path, fault)
    cluster.wait_malleable(number)
    cluster.client.resize(number, size)
    job = end(cluster, number)
    assert job.state == "FAILED"
    # A coordinator that dies at once takes its word of having begun with it.
    stages = ("(stage begun)", "(stage go)")
    assert any(stage in job.reason for stage in stages), job.reason


def test_a_joining_rank_that_is_killed_while_it_starts(cluster: Cluster, counter: Counter) -> None:
    counter.shut("hold-join")
    old = {rank.processor for rank in cluster.ranks(counter.id)}
    cluster.client.resize(counter.id, 3)
    joining_ranks = wait_until(
        lambda: [r for r in cluster.ranks(counter.id) if r.processor not in old],
        what="a joining rank",
    )
    joining_ranks[0].process.send_signal(signal.SIGKILL)
    wait_note(cluster, counter.id, "offer.withdrawn")
    job = cluster.wait_for(counter.id, lambda job: job.state == "RUNNING", "the job to go on")
    assert job.held == 2
    assert "a joining rank on" in job.reason
    assert "killed by signal 9" in job.reason
    counter.open("hold-join")
    wait_until(lambda: sum(node.used for node in cluster.client.nodes()) == 3)
    cluster.resize(counter.id, 3)
    counter.finish()


# -------------------------------------------------------------------- it does not answer


@contextmanager
def stopped(cluster: Cluster, number: int) -> Iterator[None]:
    ranks = cluster.ranks(number)
    for rank in ranks:
        rank.process.suspend()
    try:
        yield
    finally:
        for rank in ranks:
            rank.process.resume()


def passes_through(cluster: Cluster) -> None:
    """Have a job start and end beside the others."""
    number = cluster.client.submit("true", stdout="/dev/null")
    assert end(cluster, number).state == "COMPLETED"


@pytest.mark.case(36)
def test_an_application_that_never_answers(cluster: Cluster, counter: Counter) -> None:
    wait_until(lambda: cluster.client.job(counter.id).progress, what="progress")
    with stopped(cluster, counter.id):
        cluster.client.resize(counter.id, 1)
        assert "the application has not answered" in why(cluster, counter.id)
        passes_through(cluster)
        wait_note(cluster, counter.id, "offer.expired")
        passes_through(cluster)
        text = why(cluster, counter.id)
        assert "no answer within 3 s" in text
        assert "it is not asked again for" in text
        assert last_safe_point(text) >= 2.0
    cluster.resize(counter.id, 1)
    counter.finish()


@pytest.mark.parametrize("size", [1, 3])
def test_an_application_that_reaches_no_safe_point(
    cluster: Cluster, counter: Counter, size: int
) -> None:
    if size == 3:
        passes_through(cluster)  # before the processor that it needs is reserved
    counter.shut("hold")
    cluster.client.resize(counter.id, size)
    wait_note(cluster, counter.id, "resize.go")
    assert "resizes at its next safe point" in why(cluster, counter.id)
    if size == 1:
        passes_through(cluster)
    wait_note(cluster, counter.id, "resize.rolled_back")
    passes_through(cluster)
    text = why(cluster, counter.id)
    assert "no safe point within 4 s" in text
    assert last_safe_point(text) >= 3.0
    job = cluster.client.job(counter.id)
    assert (job.state, job.held) == ("RUNNING", 2)
    counter.open("hold")
    cluster.resize(counter.id, size)
    counter.finish()


def last_safe_point(text: str) -> float:
    line = next(line for line in text.splitlines() if "last safe point" in line)
    return float(line.split()[-3])
