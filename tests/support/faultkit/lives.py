"""A fault in the life of a job that is never resized: nothing is lost, nothing happens twice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

from clusterkit.evidence import gather
from faultkit.bed import PATIENCE_S, Bed
from faultkit.cases import FULL_S, Case
from faultkit.run import Result, intervene, reached
from pliant.client.api import Client
from pliant.client.client_errors import ClientError, RequestError
from testkit import wait_until

PROCESSES, CODE = 3, 7
#: A user who is told to try again does so, seconds.
_AGAIN_S = 0.2
#: A node that has no room for an order says so.
_UNSTARTED = ("run-controller.start.in-full-disk",)
#: Notes its start, and ends when the file `gate` is there. TERM does not end it.
PROGRAM = """
trap '' TERM
echo "$PLIANT_PROCESSOR" >> starts
while [ ! -e gate ]; do sleep 0.05; done
exit 7
"""


class Subject:
    """The job to which it happens; submitted, and ended by its user, over the loss of a server."""

    def __init__(self, bed: Bed, folder: Path) -> None:
        self._bed, self._folder = bed, folder
        self.name = f"life-{folder.name}"
        self.numbers: list[int] = []
        self._submitting = threading.Thread(target=self._submit, daemon=True)
        self._submitting.start()

    def _submit(self) -> None:
        with Client(str(self._bed.cluster.run)) as client:
            while not self.numbers:
                try:
                    self.numbers.append(self._ask(client))
                except RequestError as error:  # the disk is full
                    if error.kind != "unavailable":
                        raise
                    time.sleep(_AGAIN_S)

    def _ask(self, client: Client) -> int:
        return client.submit(
            "/bin/sh",
            "-c",
            PROGRAM,
            sizes=PROCESSES,
            type="mpi",
            name=self.name,
            chdir=str(self._folder),
            stdout="/dev/null",
        )

    @property
    def number(self) -> int:
        """What the user was told."""
        self._submitting.join(PATIENCE_S)
        assert self.numbers, "nobody has answered the user"
        return self.numbers[0]

    def starts(self) -> list[str]:
        """Where its processes say they were started."""
        try:
            return (self._folder / "starts").read_text().split()
        except FileNotFoundError:
            return []

    def end(self, kind: str) -> None:
        """Have it end by itself; or ask for its end, which a server that dies may not hear."""
        if kind == "run":
            (self._folder / "gate").touch()
        else:
            threading.Thread(target=self._cancel, daemon=True).start()

    def _cancel(self) -> None:
        try:
            with Client(str(self._bed.cluster.run)) as client:
                client.cancel(self.number)
        except ClientError:
            pass  # the server has died of it, or it has ended already


def run_life(bed: Bed, case: Case) -> Result:
    """Have a fault happen to a job that runs once, see that all is well, say what came of it.

    Raises:
        AssertionError: something is not well.
    """
    folder = bed.folder()
    folder.mkdir()
    latch = folder / "latch"
    bed.tell(case.orders(str(latch)))
    job = Subject(bed, folder)
    wait_until(lambda: latch.exists() or _up(job), timeout=PATIENCE_S, what="its processes")
    asked = not latch.exists()
    if asked:
        job.end(case.kind)
    reached(bed, case, latch)
    since = time.monotonic()
    intervene(bed, case, latch)
    wait_until(lambda: _up(job) or _over(bed, job), timeout=PATIENCE_S, what="its processes")
    if case.ends or not asked:  # who died may not have heard it
        job.end(case.kind)
    found = bed.cluster.wait_for(job.number, lambda job: job.final, f"job {job.number} to end")
    seconds = time.monotonic() - since
    bed.tell("")
    _check(bed, case, job)
    if case.action == "full-disk":  # whoever comes before there is room again finds none
        time.sleep(max(0.0, since + FULL_S - time.monotonic()))
        bed.give_back(since)
    bed.check_whole([(job.number, job.name)])
    return Result(case, found.state, found.reason, seconds, 0.0)


def _up(job: Subject) -> bool:
    return len(job.starts()) >= PROCESSES


def _over(bed: Bed, job: Subject) -> bool:
    try:
        return bool(job.numbers) and bed.cluster.client.job(job.numbers[0]).final
    except ClientError:
        return False


def _check(bed: Bed, case: Case, job: Subject) -> None:
    """It is there once, ran once, and ended as it should."""
    named = [row for row in gather(bed.cluster.state).jobs.values() if row.name == job.name]
    assert [row.id for row in named] == [job.number], bed.cluster.report(job.number)
    doubled = [place for place, times in Counter(job.starts()).items() if times > 1]
    assert not doubled, f"started twice on {doubled}\n{bed.cluster.report(job.number)}"
    found = bed.cluster.client.job(job.number)
    if (case.process == "shim" and case.ends) or case.name in _UNSTARTED:
        # Nobody is left who could know how its processes would have ended, or they never were.
        assert found.state in ("FAILED", "NODE_FAIL", "CANCELLED"), found
        assert found.reason
    elif case.kind == "run":
        assert (found.state, found.exit_code) == ("FAILED", CODE), bed.cluster.report(job.number)
        assert len(job.starts()) == PROCESSES
    else:
        assert found.state == "CANCELLED", bed.cluster.report(job.number)
