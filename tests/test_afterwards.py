"""What is looked at after each case is told when it does not hold, and only then."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from clusterkit import afterwards, uses
from clusterkit.afterwards import at_rest
from clusterkit.cluster import Cluster
from clusterkit.uses import BYTES_PER_JOB, DESCRIPTORS, MARGIN, THREADS, Use, Uses, swollen
from pliant.client.api import Client

BEFORE = Use(resident=100 << 20, descriptors=20, threads=10)
#: As much as is allowed, after a hundred jobs.
JOBS = 100
MOST = Use(
    int(BEFORE.resident * (1 + MARGIN)) + JOBS * BYTES_PER_JOB,
    BEFORE.descriptors + DESCRIPTORS,
    BEFORE.threads + THREADS,
)
#: Has as many more descriptors as it is told, and works when there is no more to be told.
PROCESS = """
import sys
held = []
print(flush=True)
for line in sys.stdin:
    held = [open("/dev/null") for _ in range(int(line))]
    print(flush=True)
while True:
    pass
"""


@contextmanager
def complaint(text: str) -> Iterator[None]:
    """See that something does not hold; patience is short only with what that is."""
    module, name = (afterwards, "CANARY_S") if text.startswith("I7") else (uses, "CALM_S")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, 0.3)
        with pytest.raises(AssertionError, match=text):
            yield


def test_growth_within_the_limits_is_allowed() -> None:
    assert swollen("server", BEFORE, 0, MOST, JOBS, MARGIN) == []


@pytest.mark.case(66)
@pytest.mark.parametrize("what", ["resident", "descriptors", "threads"])
def test_growth_beyond_the_limits_is_reported(what: str) -> None:
    now = replace(MOST, **{what: getattr(MOST, what) + 2})
    (told,) = swollen("server", BEFORE, 0, now, JOBS, MARGIN)
    assert told.startswith("I10: server keeps ")


def test_memory_of_jobs_that_did_not_end_is_told() -> None:
    assert swollen("server", BEFORE, 0, MOST, JOBS - 1, MARGIN)
    assert swollen("server", BEFORE, 1, MOST, JOBS, MARGIN)


class Daemon:
    """A process that has as many descriptors as it is told."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._answered()
        self.process = psutil.Process(self._process.pid)

    def hold(self, descriptors: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"%d\n" % descriptors)
        self._process.stdin.flush()
        self._answered()

    def work(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _answered(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"\n"

    def end(self) -> None:
        self._process.kill()
        with self._process:
            pass  # closes what is open to it, and collects it


@pytest.fixture
def daemons() -> Iterator[list[Daemon]]:
    """Return a daemon, to which others may be added; the last one is who is looked at."""
    made = [Daemon()]
    yield made
    for daemon in made:
        daemon.end()


@pytest.fixture
def looked(daemons: list[Daemon]) -> Uses:
    """Return what is known after the first rest."""
    looked = Uses(lambda: {"it": daemons[-1].process} if daemons else {})
    looked.rest(jobs=0)
    return looked


def test_descriptors_that_are_kept(daemons: list[Daemon], looked: Uses) -> None:
    before = looked.now["it"].descriptors
    daemons[0].hold(DESCRIPTORS)
    looked.rest(jobs=1)
    assert looked.now["it"].descriptors == before + DESCRIPTORS
    daemons[0].hold(DESCRIPTORS + 1)
    with complaint("I10: it keeps descriptors"):
        looked.rest(jobs=2)


def test_descriptors_of_a_restarted_daemon_are_compared_too(
    daemons: list[Daemon], looked: Uses
) -> None:
    daemons.append(Daemon())
    looked.rest(jobs=1)
    daemons[-1].hold(DESCRIPTORS + 1)
    with complaint("I10: it keeps descriptors"):
        looked.rest(jobs=2)


def test_what_is_given_back_in_a_moment_is_not_kept(daemons: list[Daemon], looked: Uses) -> None:
    daemons[0].hold(DESCRIPTORS + 1)
    later = threading.Timer(0.1, daemons[0].hold, (0,))
    later.start()
    looked.rest(jobs=1)
    later.join()


def test_who_never_comes_to_rest(daemons: list[Daemon], looked: Uses) -> None:
    daemons[0].work()
    with complaint("I10: it is busy"):
        looked.rest(jobs=1)


def test_who_is_gone(daemons: list[Daemon], looked: Uses) -> None:
    daemons[0].end()
    with complaint("I10: "):
        looked.rest(jobs=1)
    daemons.clear()
    with complaint("I10: it is gone"):
        looked.rest(jobs=1)


@pytest.fixture
def cluster(state_dir: Path) -> Iterator[Cluster]:
    """Return a cluster with room for one job."""
    cluster = Cluster(state_dir.parent, nodes=1, slots=1, strategy="fcfs")
    cluster.up()
    yield cluster
    cluster.down()


@pytest.mark.cluster
def test_a_cluster_with_a_leak_and_one_that_runs_nothing(cluster: Cluster) -> None:
    at_rest(cluster)
    with ExitStack() as stack:
        for _ in range(2 * DESCRIPTORS):
            stack.enter_context(Client(str(cluster.run))).nodes()
        with complaint("I10: server keeps descriptors"):
            at_rest(cluster)
    at_rest(cluster)
    cluster.client.drain("n1", "repair")
    with complaint("I7: the end of a canary"):
        at_rest(cluster)
