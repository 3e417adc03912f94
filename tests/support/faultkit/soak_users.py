"""Users of a soak: each with a connection of its own, doing something at random all the time."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from pliant.client.api import Client
from pliant.client.client_errors import ClientError, NoServerError, RequestError
from testkit.repository import ROOT

SOAKER = ROOT / "tests" / "faults" / "apps" / "soaker.py"
#: Notes where each process runs, works for a moment, ends with a code of its own.
_PROGRAM = 'echo "$PLIANT_PROCESSOR" >> {file}; sleep 0.{tenths}; exit {code}'
#: Refusals that a user has to live with; anything else is the server's fault.
_KINDS = {"invalid", "not_found", "conflict", "unavailable", "refused", "bad_request", "denied"}

Act = Callable[[Client], object]


@dataclass
class Told:
    """A job that was acknowledged to its user."""

    number: int
    name: str
    #: Of a script: the code that it ends with, and where its processes say that they run.
    code: int = 0
    places: Path | None = None
    #: Of an MPI program: its folder.
    folder: Path | None = None
    #: Its user may have cancelled it.
    cancelled: bool = False
    #: One of its processes, or a shim of it, was killed: it may fail.
    hurt: bool = False


class Ledger:
    """What users were told and what they did, from all threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: dict[int, Told] = {}
        self.acts: Counter[str] = Counter()
        self.faults: list[str] = []
        self._lock = threading.Lock()

    def acknowledged(self, job: Told) -> None:
        """A user was told the number of its job."""
        with self._lock:
            if job.number in self.jobs:
                self.faults.append(f"job {job.number} was acknowledged to two users")
            self.jobs[job.number] = job

    def did(self, act: str) -> None:
        """A user has done something."""
        with self._lock:
            self.acts[act] += 1


class User(threading.Thread):
    """Acts at random until it is over; what it does is in the subclasses."""

    #: Between two acts at most, seconds.
    pause_s = 0.5

    def __init__(self, name: str, run: Path, ledger: Ledger, seed: str) -> None:
        super().__init__(name=name, daemon=True)
        self.ledger, self.over = ledger, threading.Event()
        self.chance = Random(f"{seed}:{name}")
        self._run_dir = str(run)
        self.mine: list[Told] = []

    def run(self) -> None:
        """Act; a refusal or the loss of the server is told, and no end."""
        with Client(self._run_dir) as client:
            while not self.over.is_set():
                act = self.chance.choice(self.choices())
                self._try(client, act)
                time.sleep(self.chance.uniform(0.0, self.pause_s))

    def choices(self) -> list[Act]:
        """What it may do next, what is more likely more often."""
        raise NotImplementedError

    def _try(self, client: Client, act: Act) -> None:
        name = act.__name__.strip("_")
        try:
            act(client)
            self.ledger.did(name)
        except NoServerError:
            self.ledger.did(f"{name} without a server")
        except RequestError as error:
            self.ledger.did(f"{name} refused")
            if error.kind not in _KINDS:
                self.ledger.faults.append(f"{name}: {error.kind}: {error}")
        except (ClientError, Exception) as error:
            self.ledger.faults.append(f"{name}: {error!r}")

    def _look(self, client: Client) -> None:
        client.jobs()
        client.nodes()
        if self.mine:
            number = self.chance.choice(self.mine).number
            client.why(number)
            client.history(number)

    def _some(self) -> Told:
        return self.chance.choice(self.mine[-6:])


class Scripter(User):
    """Submits short scripts of one to three processes; cancels, holds and releases some."""

    def choices(self) -> list[Act]:
        """Mostly submissions."""
        others: list[Act] = [self._cancel, self._hold, self._release, self._release, self._look]
        return [self._submit] * 5 + (others if self.mine else [])

    def _submit(self, client: Client) -> None:
        code = self.chance.choice([0, 0, 1, 7])
        name = f"{self.name}-{len(self.mine)}-{self.chance.randrange(10**9)}"
        file = self.ledger.folder / name
        program = _PROGRAM.format(file=file, tenths=self.chance.randrange(5), code=code)
        number = client.submit(
            "/bin/sh",
            "-c",
            program,
            sizes=self.chance.choice([1, 1, 2, 3]),
            type="mpi",
            name=name,
            hold=self.chance.random() < 0.1,
            stdout="/dev/null",
        )
        job = Told(number, name, code=code, places=file)
        self.mine.append(job)
        self.ledger.acknowledged(job)

    def _cancel(self, client: Client) -> None:
        job = self._some()
        job.cancelled = True
        client.cancel(job.number)

    def _hold(self, client: Client) -> None:
        client.hold(self._some().number)

    def _release(self, client: Client) -> None:
        client.release(self._some().number)


class Programmer(User):
    """Has one MPI program at a time, and has it resized, suspended, resumed and requeued."""

    pause_s = 1.5

    def __init__(self, kind: str, run: Path, ledger: Ledger, seed: str) -> None:
        super().__init__(kind, run, ledger, seed)
        self._kind = kind

    def choices(self) -> list[Act]:
        """Once it has a program."""
        if not self.mine or self.mine[-1].hurt:
            return [self._submit]
        words: list[Act] = [self._suspend, self._resume, self._resume, self._requeue, self._look]
        return words + [self._resize] * (4 if self._kind == "malleable" else 1)

    def _submit(self, client: Client) -> None:
        name = f"{self.name}-{self.chance.randrange(10**9)}"
        folder = self.ledger.folder / name
        folder.mkdir()
        number = client.submit(
            sys.executable,
            str(SOAKER),
            str(folder),
            self._kind,
            name,
            sizes="1-4",
            prefer=self.chance.randint(1, 3),
            type="mpi",
            name=name,
            stdout=str(folder / "out"),
        )
        job = Told(number, name, folder=folder)
        self.mine.append(job)
        self.ledger.acknowledged(job)

    def _resize(self, client: Client) -> None:
        client.resize(self.mine[-1].number, self.chance.choice([0, 0, 1, 2, 3, 4]))

    def _suspend(self, client: Client) -> None:
        client.suspend(self.mine[-1].number)

    def _resume(self, client: Client) -> None:
        client.resume_job(self.mine[-1].number)

    def _requeue(self, client: Client) -> None:
        if self.chance.random() < 0.3:
            client.requeue(self.mine[-1].number)


class Operator(User):
    """Drains nodes and lets them take work again."""

    pause_s = 2.0

    def choices(self) -> list[Act]:
        """More often back than away."""
        return [self._drain, self._resume_node, self._resume_node, self._look]

    def _drain(self, client: Client) -> None:
        client.drain(self.chance.choice(client.nodes()).name, "the soak says so")

    def _resume_node(self, client: Client) -> None:
        for node in client.nodes():
            if node.state in ("DRAINING", "DRAINED"):
                client.resume(node.name)
