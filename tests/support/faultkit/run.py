"""One case from its start to the proof that nothing of it is left."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from clusterkit.cluster import Cluster, gone
from faultkit.bed import PATIENCE_S, Bed, Carrier
from faultkit.cases import Case
from pliant.client.api import Client, Job
from pliant.client.client_errors import ClientError
from testkit import wait_until

#: What ends a transaction.
_ENDS = {"job.resized", "resize.rolled_back", "offer.expired", "offer.withdrawn"}
#: An operator looks at a process that hangs after this time, seconds.
_LOOK_S = 2.0
#: Sizes before and after.
SIZES = {"grow": (2, 4), "shrink": (3, 2)}


@dataclass(frozen=True)
class Result:
    """What came of a case."""

    case: Case
    #: ``new size``, ``old size`` or ``FAILED``.
    verdict: str
    #: What the server says about it.
    reason: str
    #: From the fault to the verdict, seconds.
    seconds: float
    #: The longest time between two steps of the application, seconds; 0: it has failed.
    pause: float


def run_case(bed: Bed, case: Case) -> Result:
    """Have a fault happen in a resize, see that all is well, and say what came of it.

    Raises:
        AssertionError: something is not well.
    """
    folder = bed.folder()
    before, after = SIZES[case.kind]
    job = bed.subject(folder, before)
    latch = folder / "latch"
    bed.tell(case.orders(str(latch)))
    asking = _resize(bed, job, after, shrinks=case.kind == "shrink")
    reached(bed, case, latch)
    since = time.monotonic()
    intervene(bed, case, latch)
    found = _settled(bed, job, asking)
    seconds = time.monotonic() - since
    bed.tell("")
    bed.give_back(since)
    if found.final:
        verdict = found.state
        _check_failed(case, found)
        wait_until(lambda: not bed.cluster.ranks(job.id), what="no process of the failed job")
        pause = 0.0
    else:
        verdict = {before: "old size", after: "new size"}[found.processors]
        pause = job.beat()[2]
        if case.stuck:
            bed.cluster.client.cancel(job.id)
        else:
            _live_on(bed, job, found.processors, deaf=case.deaf)
    bed.check_whole([(job.id, job.name)])
    return Result(case, verdict, found.reason, seconds, pause)


def _resize(bed: Bed, job: Carrier, size: int, *, shrinks: bool) -> threading.Thread:
    """Ask for it beside everything else: the server may never answer."""
    cluster = bed.cluster
    release = []
    if shrinks:
        first = cluster.history(job.id, "job.started")[0].data["processors"][0]
        release = [cluster.place(first)]

    def ask() -> None:
        try:
            with Client(str(cluster.run)) as client:
                client.resize(job.id, size, release=release)
        except ClientError:
            pass  # the server has died of it

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


def reached(bed: Bed, case: Case, latch: Path) -> None:
    """Wait until the fault has happened."""
    try:
        wait_until(latch.exists, timeout=PATIENCE_S, what=f"{case.point} to be reached")
    except AssertionError as error:
        jobs = [bed.cluster.report(job.id) for job in bed.cluster.client.jobs()]
        raise AssertionError("\n".join([str(error), *jobs])) from None


def intervene(bed: Bed, case: Case, latch: Path) -> None:
    """Do what an operator does: look at what hangs, end it, start what is missing."""
    if case.process not in ("server", "controller", "launcher", "shim") or not case.ends:
        return
    pid = int(wait_until(latch.read_text))
    if case.action == "hang":
        time.sleep(_LOOK_S)
        try:
            psutil.Process(pid).send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            pass
    wait_until(lambda: _ended(pid), what="its end")
    bed.mend()


def _ended(pid: int) -> bool:
    try:
        return gone(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return True


def _settled(bed: Bed, job: Carrier, asking: threading.Thread) -> Job:
    """Wait until the resize is over, one way or the other, and processes and processors agree."""
    found: list[Job] = []

    def over() -> bool:
        try:
            found[:] = [bed.cluster.client.job(job.id)]
            if found[0].final:
                return True
            if asking.is_alive() or found[0].state != "RUNNING" or not _closed(bed, job.id):
                return False
            used = sum(node.used for node in bed.cluster.client.nodes())
        except ClientError:
            return False
        processes = len(bed.cluster.ranks(job.id))
        return processes == found[0].processors == used - 1

    try:
        wait_until(over, timeout=PATIENCE_S, every=0.05, what="the resize to be over")
    except AssertionError as error:
        ranks = [str(rank) for rank in bed.cluster.ranks(job.id)]
        nodes = [f"{node.name} {node.used}" for node in bed.cluster.client.nodes()]
        known = "\n".join([bed.cluster.report(job.id), *nodes, *ranks])
        raise AssertionError(f"{error}\n{known}") from None
    return found[0]


def _closed(bed: Bed, number: int) -> bool:
    """Whether every offer that the server knows of has come to its end."""
    opened, closed = set(), set()
    for event in bed.cluster.history(number):
        resize = event.data.get("resize")
        if event.kind == "offer.sent":
            opened.add(resize)
        elif event.kind in _ENDS or event.data.get("answer") == "reject":
            closed.add(resize)
    return opened <= closed


def _check_failed(case: Case, job: Job) -> None:
    assert case.may_fail, f"{case.name}: {job.state}: {job.reason}"
    # A job that has lost a shim counts as one that has lost a node.
    assert job.state == ("NODE_FAIL" if case.process == "shim" else "FAILED"), job
    # While there is no agreement, or none any more, the loss of a rank is not a resize's.
    told = "(stage " in job.reason or (not case.in_transaction and "signal 9" in job.reason)
    assert told, f"no stage in: {job.reason}"


def _live_on(bed: Bed, job: Carrier, size: int, *, deaf: bool) -> None:
    """It goes on, can be resized again, and its numbers are right to the end."""
    job.goes_on()
    if not deaf:
        _resize_again(bed.cluster, job, size)
    job.finish()


def _resize_again(cluster: Cluster, job: Carrier, size: int) -> None:
    """One resize that came to nothing is no hindrance to the next."""
    cluster.wait_connected(job.id)
    cluster.resize(job.id, size + 1 if size < 3 else size - 1)
