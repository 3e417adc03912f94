"""Rigid and malleable jobs at random while one failpoint kills whoever comes by, three times."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from clusterkit.checker import settled
from clusterkit.evidence import JobRow
from faultkit.bed import PATIENCE_S, Bed, Carrier
from faultkit.cases import Case
from faultkit.run import intervene, reached
from pliant.client.api import Client, Job
from pliant.client.client_errors import ClientError

KILLS = 3
#: What lives at one time, so that the six processors are enough for growths and starts.
RIGID, MALLEABLE = 2, 1
#: Sizes between which malleable jobs are sent.
_SIZES = (1, 2, 3, 4)
#: Between two things that a user does, at most, seconds.
_LULL_S = 0.4
#: Says where it runs, works for a moment, ends with its own code. TERM does not end it.
_PROGRAM = "trap '' TERM; echo $PLIANT_PROCESSOR >> {file}; sleep 0.{tenths}; exit {code}"
#: Those whose death costs the job that they work for.
_NEEDED = ("shim", "appkit")


class Mix:
    """Users of one cluster, and what they were told."""

    def __init__(self, bed: Bed, folder: Path, seed: str) -> None:
        folder.mkdir()
        self._bed, self._folder, self._seed = bed, folder, seed
        self._over = threading.Event()
        self._failures: list[BaseException] = []
        #: Numbers and names, as users were told.
        self.told: list[tuple[int, str]] = []
        #: By number: the codes with which rigid jobs end, those that were cancelled, programs.
        self.codes: dict[int, int] = {}
        self.cancelled: set[int] = set()
        self.carriers: dict[int, Carrier] = {}
        self._users = [
            threading.Thread(target=self._guarded, args=(user, place), daemon=True)
            for user, number in ((self._rigid, RIGID), (self._malleable, MALLEABLE))
            for place in range(number)
        ]
        self._begun = threading.Barrier(len(self._users) + 1)
        for thread in self._users:
            thread.start()
        self._begun.wait(PATIENCE_S)

    @property
    def prefix(self) -> str:
        """How the names of all its jobs begin."""
        return f"{self._folder.name}-"

    def file(self, name: str) -> Path:
        """Where the processes of a rigid job say that they were started."""
        return self._folder / name.removeprefix(self.prefix)

    def stop(self) -> None:
        """No more is asked for."""
        self._over.set()
        for thread in self._users:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a user has no answer"
        assert not self._failures, self._failures

    def _guarded(self, user: Callable[[Client, Random, str], None], place: int) -> None:
        """Have a user with a link of its own: whose server dies of the next word asks again."""
        name = f"{user.__name__}{place}"
        try:
            with Client(str(self._bed.cluster.run)) as client:
                client.nodes()
                self._begun.wait(PATIENCE_S)
                user(client, Random(f"{self._seed}:{name}"), name)
        except BaseException as error:
            self._failures.append(error)

    def _rigid(self, client: Client, chance: Random, name: str) -> None:
        """Submit, sometimes cancel, wait for the end, again."""
        turn = 0
        while not self._over.is_set():
            turn += 1
            code, file = chance.randrange(8), self._folder / f"{name}.{turn}"
            text = _PROGRAM.format(file=file, tenths=chance.randrange(1, 5), code=code)
            number = client.submit(
                "/bin/sh",
                "-c",
                text,
                sizes=chance.choice([1, 1, 2]),
                type="mpi",
                name=f"{self.prefix}{file.name}",
                stdout="/dev/null",
            )
            self.told.append((number, f"{self.prefix}{file.name}"))
            self.codes[number] = code
            if chance.random() < 0.4:
                time.sleep(chance.uniform(0.0, _LULL_S))
                self.cancelled.add(number)
                _say(partial(client.cancel, number))
            self._await(client, lambda job: job.final, number)

    def _malleable(self, client: Client, chance: Random, name: str) -> None:
        """Have a job, and send it from one size to the next; another one when it has failed."""
        turn = 0
        while not self._over.is_set():
            turn += 1
            job = Carrier(
                self._bed.cluster,
                self._folder / f"{name}.{turn}",
                chance.choice(_SIZES[:3]),
                orders=f"@{self._bed.orders}",
                client=client,
            )
            self.told.append((job.id, job.name))
            self.carriers[job.id] = job
            while not self._over.is_set():
                found = self._await(client, lambda job: job.final or _idle(job), job.id)
                if found is None or found.final:
                    break
                time.sleep(chance.uniform(0.0, _LULL_S))
                self._resize(client, chance, found)

    def _resize(self, client: Client, chance: Random, job: Job) -> None:
        size = chance.choice([size for size in _SIZES if size != job.processors])
        first = self._first(job.id)
        release = [first] if first and size < job.processors and chance.random() < 0.7 else []
        _say(partial(client.resize, job.id, size, release=release))

    def _first(self, number: int) -> str:
        """Where the coordinator of a job is."""
        try:
            events = self._bed.cluster.history(number)
            told = [event for event in events if event.kind in ("job.started", "job.resized")]
            return self._bed.cluster.place(told[-1].data["processors"][0])
        except (ClientError, LookupError):
            return ""

    def _await(self, client: Client, accept: Callable[[Job], bool], number: int) -> Job | None:
        while not self._over.is_set():
            try:
                job = client.job(number)
                if accept(job):
                    return job
            except ClientError:
                pass  # the server is being started again
            time.sleep(0.05)
        return None


def sweep(bed: Bed, point: str, seed: int) -> str:
    """Have whoever comes by a place die, three times, under load; what came of it, in a line.

    Raises:
        AssertionError: something is lost, was done twice or is left over.
    """
    folder = bed.folder()
    case = Case(point, "kill", "sweep")
    mix = Mix(bed, folder, f"{seed}:{point}")
    since = time.monotonic()
    try:
        for turn in range(KILLS):
            latch = folder / f"latch{turn}"
            bed.tell(case.orders(str(latch)))
            reached(bed, case, latch)
            intervene(bed, case, latch)
    finally:
        bed.tell("")
        mix.stop()
    for carrier in mix.carriers.values():
        (carrier.folder / "stop").touch()
    ends = _judge(bed, mix, case)
    bed.check_whole(mix.told)
    return f"{KILLS} kills in {time.monotonic() - since:.0f} s, {dict(ends)}"


def _judge(bed: Bed, mix: Mix, case: Case) -> Counter[str]:
    """Every job that was acknowledged has ended, once, as it should; there are no others."""
    numbers = sorted(number for number, _ in mix.told)
    for number in numbers:
        bed.cluster.wait_for(number, lambda job: job.final, f"job {number} to end")
    found = settled(bed.cluster.state, mix.told).jobs
    named = sorted(job.id for job in found.values() if job.name.startswith(mix.prefix))
    assert named == numbers, "doubled, lost or not acknowledged"
    hit = [number for number in mix.codes if not _rigid_well(mix, found[number])]
    hit += [job.id for job in mix.carriers.values() if not _carrier_well(job, found[job.id])]
    reports = "\n\n".join(map(bed.cluster.report, hit))
    assert all(found[number].state in ("FAILED", "NODE_FAIL") for number in hit), reports
    assert all(found[number].record["reason"] for number in hit), reports
    # One that is needed works for one job.
    assert len(hit) <= (KILLS if case.process in _NEEDED else 0), reports
    return Counter(found[number].state for number in numbers)


def _rigid_well(mix: Mix, job: JobRow) -> bool:
    """Whether a job ended as if nothing had happened. In any case, it did not run twice."""
    file, code = mix.file(job.name), mix.codes[job.id]
    places = Counter(map(int, file.read_text().split()) if file.exists() else ())
    assert max(places.values(), default=1) == 1, f"started twice: {places}\n{job.record}"
    assert set(places) <= set(job.allocation), f"{places}\n{job.record}"
    if job.state == "CANCELLED":
        return job.id in mix.cancelled
    if job.state == "COMPLETED":  # all of them, while of others one may fail before another is up
        return (job.exit_code, code) == (0, 0) and set(places) == set(job.allocation)
    return (job.state, job.exit_code) == ("FAILED", code) and code != 0 and bool(places)


def _carrier_well(carrier: Carrier, job: JobRow) -> bool:
    ended = (job.state, job.exit_code) == ("COMPLETED", 0)
    return ended and "right to the end" in carrier.output.read_text()


def _idle(job: Job) -> bool:
    """Whether a job may be asked for another size; the server says whether it will."""
    return job.state == "RUNNING"


def _say(word: Callable[[], object]) -> None:
    """Ask for something; the server may refuse it, or die of it."""
    try:
        word()
    except ClientError:
        pass
