"""A whole cluster of this machine for a test, and what its processes look like from outside."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from clusterkit.uses import Uses
from pliant.client.api import Client, Event, Job
from pliant.client.client_errors import ClientError
from pliant.client.demo.checks import segments_of
from testkit.processes import children, run_python, with_variable
from testkit.waiting import wait_until

PLIANT = ("-m", "pliant.client.commands.cli")
#: A loaded machine is slow.
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Rank:
    """A process of a job."""

    process: psutil.Process
    processor: int
    node: str


class Cluster:
    """The daemons in a state folder of their own, brought up and down by the command line."""

    def __init__(self, base: Path, nodes: int, slots: int, strategy: str) -> None:
        self.base, self.state, self.run = base, base / "state", base / "run"
        self.slots = slots
        self.shape = ["--nodes", str(nodes), "--slots", str(slots), "--strategy", strategy]
        self.client = Client(str(self.run))
        self.segments: set[str] = set()
        #: Daemons that were killed since it was brought up.
        self.missing: set[str] = set()
        #: What its daemons use at each rest.
        self.uses = Uses(self.daemons)

    # ---------------------------------------------------------------- daemons

    def up(self) -> None:
        """Bring up what is missing of it."""
        run_python(*PLIANT, "up", "--detach", *self.shape, timeout=PATIENCE_S)
        self.missing.clear()
        self.client.close()
        self.client = Client(str(self.run))
        if not self.uses.now:
            self.client.nodes()  # keeps its connection
            self.uses.rest(jobs=0)

    def down(self) -> None:
        """Take it down with its jobs."""
        self.client.close()
        run_python(*PLIANT, "down", timeout=PATIENCE_S)

    def daemon(self, name: str) -> psutil.Process:
        """Return the process ``server`` or ``node-NAME``."""
        return psutil.Process(int((self.run / f"{name}.pid").read_text().split()[0]))

    def kill(self, name: str) -> None:
        """End a daemon as a crash does."""
        process = self.daemon(name)
        process.send_signal(signal.SIGKILL)
        self.missing.add(name)
        wait_until(lambda: gone(process), what=f"{name} to be gone")
        if name == "server":
            self.client.close()

    def daemons(self) -> dict[str, psutil.Process]:
        """Return the server, the controllers and the launchers by name."""
        names = sorted(path.stem for path in self.run.glob("*.pid"))
        found = {name: self.daemon(name) for name in names}
        for name in names:
            for child in children(found[name]):
                if "launcher" in " ".join(child.cmdline()):
                    found[f"launcher of {name}"] = child
        return found

    # ---------------------------------------------------------------- jobs

    def ranks(self, number: int) -> list[Rank]:
        """Return the living processes of a job, by processor."""
        found = []
        for process, env in with_variable("PLIANT_PROCESSOR"):
            try:
                if self._is_rank(env, number) and process.status() != psutil.STATUS_ZOMBIE:
                    place = int(env["PLIANT_PROCESSOR"])
                    found.append(Rank(process, place, env["PLIANT_NODE"]))
            except (psutil.Error, OSError):
                continue  # it has ended, or belongs to somebody else
        self.segments |= segments_of(rank.process.pid for rank in found)
        return sorted(found, key=lambda rank: rank.processor)

    def _is_rank(self, env: dict[str, str], number: int) -> bool:
        own = env.get("PLIANT_TOKEN_FILE", "").startswith(f"{self.state}/")
        return own and env.get("PLIANT_JOB") == str(number)

    def place(self, processor: int) -> str:
        """Return the name of a slot: ``n2/1``."""
        for node in self.client.nodes():
            if processor < node.slots:
                return f"{node.name}/{processor}"
            processor -= node.slots
        raise KeyError(processor)

    def history(self, number: int, kind: str = "") -> list[Event]:
        """Return what happened to a job, of one kind or of all."""
        return [e for e in self.client.history(number) if kind in ("", e.kind)]

    def wait_for(self, number: int, accept: Callable[[Job], bool], what: str) -> Job:
        """Wait until a job is as it should be; tell all that is known when it is not in time.

        As long as the job computes, this waits longer: other load makes iterations slow.
        """
        found: list[Job] = []

        def ready() -> bool:
            try:
                found[:] = [self.client.job(number)]
            except ClientError:
                return False
            return accept(found[0]) or found[0].final

        for attempt in range(1, 6):
            before = _iteration(found)
            try:
                wait_until(ready, timeout=PATIENCE_S, every=0.03, what=what)
                break
            except AssertionError as error:
                if attempt == 5 or _iteration(found) == before:
                    raise AssertionError(f"{error}\n{self.report(number)}") from None
        assert accept(found[0]), f"{what}, but it ended\n{self.report(number)}"
        return found[0]

    def wait_malleable(self, number: int) -> Job:
        """Wait until a job can be resized: it runs, has registered, and is connected."""
        self.wait_for(number, lambda job: job.state == "RUNNING", f"job {number} to run")
        self.wait_for(
            number,
            lambda _: bool(self.history(number, "application.registered")),
            f"job {number} to register",
        )
        return self.wait_connected(number)

    def wait_connected(self, number: int) -> Job:
        """Wait until the coordinator of a job is connected, as it is not after a restart."""
        return self.wait_for(
            number,
            lambda _: not any("not connected" in line for line in self.client.why(number).text),
            f"the coordinator of job {number} to be connected",
        )

    def resize(self, number: int, size: int, release: Sequence[str] = ()) -> Event:
        """Have a job resized and return the note about it when its leavers have gone."""
        epoch = self.client.job(number).epoch
        self.client.resize(number, size, release=release)
        return self.resized(number, size, epoch)

    def resized(self, number: int, size: int, epoch: int) -> Event:
        """Wait for the end of a resize that was asked for when the job was at an epoch."""
        self.wait_for(
            number,
            lambda job: (job.state, job.processors, job.epoch) == ("RUNNING", size, epoch + 1),
            f"job {number} to have {size} processors in epoch {epoch + 1}",
        )
        return self.history(number, "job.resized")[-1]

    def report(self, number: int) -> str:
        """Return all that is known of a job."""
        try:
            lines = [str(self.client.job(number)), *self.client.why(number).text]
            lines += [f"{e.time:.3f} {e.kind}: {e.text}" for e in self.history(number)[-15:]]
            output = Path(self.client.job(number).stdout)
        except ClientError as error:
            return f"({error})"
        if output.exists():
            lines += ["--- its output", *output.read_text(errors="replace").splitlines()[-15:]]
        return "\n".join(lines)


def _iteration(found: Sequence[Job]) -> object:
    """Return the iteration in which a job is that was looked up; None if it has told none."""
    return (found[0].progress or {}).get("iteration") if found else None


def gone(process: psutil.Process) -> bool:
    """Return whether a process has ended, collected or not."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def zombies_below(processes: Sequence[psutil.Process]) -> list[str]:
    """Return the descendants of processes that have ended and were not collected."""
    found = []
    for process in processes:
        for child in children(process, recursive=True):
            try:
                if child.status() == psutil.STATUS_ZOMBIE:
                    found.append(f"{child.pid} below {process.pid} ({os.getpid()})")
            except psutil.NoSuchProcess:
                continue
    return found
