"""Rigid and malleable jobs at random while one failpoint kills whoever comes by, three times."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from faultkit.bed import PATIENCE_S, Bed, Carrier
from faultkit.cases import Case
from faultkit.run import intervene, reached
from pliant.client.api import Client, Job
from pliant.client.errors import ClientError
from testkit.evidence import gather

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
        #: By number: the codes with which rigid jobs end, those that were cancelled, programs.
        self.codes: dict[int, int] = {}
        self.cancelled: set[int] = set()
        self.carriers: dict[int, Carrier] = {}
        self._users = [
            threading.Thread(target=self._guarded, args=(user, place), daemon=True)
            for user, number in ((self._rigid, RIGID), (self._malleable, MALLEABLE))
            for place in range(number)
        ]
        for thread in self._users:
            thread.start()

    def file(self, name: str) -> Path:
        """Where the processes of a rigid job say that they were started."""
        return self._folder / name.removeprefix(f"{self._folder.name}-")

    def stop(self) -> None:
        """No more is asked for."""
        self._over.set()
        for thread in self._users:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a user has no answer"
        assert not self._failures, self._failures

    def _guarded(self, user: Callable[[Random, str], None], place: int) -> None:
        name = f"{user.__name__}{place}"
        try:
            user(Random(f"{self._seed}:{name}"), name)
        except BaseException as error:
            self._failures.append(error)

    def _rigid(self, chance: Random, name: str) -> None:
        """Submit, sometimes cancel, wait for the end, again."""
        turn = 0
        with Client(str(self._bed.cluster.run)) as client:
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
                    name=f"{self._folder.name}-{file.name}",
                    stdout="/dev/null",
                )
                self.codes[number] = code
                if chance.random() < 0.4:
                    time.sleep(chance.uniform(0.0, _LULL_S))
                    self.cancelled.add(number)
                    _say(partial(client.cancel, number))
                self._await(client, lambda job: job.final, number)

    def _malleable(self, chance: Random, name: str) -> None:
        """Have a job, and send it from one size to the next; another one when it has failed."""
        turn = 0
        while not self._over.is_set():
            turn += 1
            job = Carrier(
                self._bed.cluster,
                self._folder / f"{name}.{turn}",
                chance.choice(_SIZES[:3]),
                orders=f"@{self._bed.orders}",
            )
            self.carriers[job.id] = job
            with Client(str(self._bed.cluster.run)) as client:
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
    bed.check_whole()
    return f"{KILLS} kills in {time.monotonic() - since:.0f} s, {dict(ends)}"


def _judge(bed: Bed, mix: Mix, case: Case) -> Counter[str]:
    """Every job that was acknowledged has ended, once, as it should."""
    client = bed.cluster.client
    numbers = sorted([*mix.codes, *mix.carriers])
    for number in numbers:
        bed.cluster.wait_for(number, lambda job: job.final, f"job {number} to end")
    found = gather(bed.cluster.state).jobs
    names = Counter(job.name for job in found.values() if job.id in mix.codes)
    assert [name for name, times in names.items() if times > 1] == [], "doubled"
    costs = case.process in _NEEDED
    for number, code in mix.codes.items():
        job, report = client.job(number), bed.cluster.report(number)
        file = mix.file(job.name)
        starts = Counter(file.read_text().split()) if file.exists() else Counter[str]()
        assert max(starts.values(), default=1) == 1, f"started twice: {starts}\n{report}"
        if job.state == "CANCELLED":
            assert number in mix.cancelled, report
        elif not (costs and job.state == "FAILED" and job.reason):
            state = "FAILED" if code else "COMPLETED"
            assert (job.state, job.exit_code) == (state, code), report
    for number, carrier in mix.carriers.items():
        job, report = client.job(number), bed.cluster.report(number)
        if not (costs and job.state == "FAILED" and job.reason):
            assert (job.state, job.exit_code) == ("COMPLETED", 0), report
            assert "right to the end" in carrier.output.read_text(), report
    return Counter(client.job(number).state for number in numbers)


def _idle(job: Job) -> bool:
    """Whether a job may be asked for another size; the server says whether it will."""
    return job.state == "RUNNING"


def _say(word: Callable[[], object]) -> None:
    """Ask for something; the server may refuse it, or die of it."""
    try:
        word()
    except ClientError:
        pass
