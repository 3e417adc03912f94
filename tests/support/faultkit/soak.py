"""A cluster that is used and hurt at random for a long time, and looked at again and again.

In turns: for a while users do what they like, daemons are killed or frozen, shims and ranks killed;
then all comes to rest, and everything that must hold is looked at: I1-I10, no zombie, no process of
nobody, no shared memory, nothing in the server's log.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil

from clusterkit.afterwards import at_rest
from clusterkit.cluster import Cluster, zombies_below
from clusterkit.evidence import Evidence, JobRow
from clusterkit.logs import Logs
from faultkit.soak_users import Ledger, Operator, Programmer, Scripter, Told, User
from pliant.client.api import Job
from pliant.client.client_errors import ClientError
from pliant.client.demo.checks import segments_of
from testkit import wait_until

SETTINGS = """
debug: true
offer_timeout_s: 5
prepare_timeout_s: 30
safe_point_timeout_s: 20
resize_deadline_s: 40
save_deadline_s: 30
start_deadline_s: 40
kill_grace_s: 1
quiet_s: 0.5
"""
SCRIPTERS = 3
PATIENCE_S = 180.0
SHARED_MEMORY = Path("/dev/shm")
#: Between two faults, seconds.
LULL_S = (1.0, 4.0)
FROZEN_S = (0.2, 2.0)


class Soak:
    """Uses and hurts a cluster; judges it at every rest."""

    def __init__(self, cluster: Cluster, folder: Path, seed: int) -> None:
        self._cluster, self._seed = cluster, seed
        self._ledger = Ledger(folder)
        self._chance = Random(seed)
        self._hurt: Counter[str] = Counter()
        self._turn, self._logs = 0, Logs(cluster.state)
        self._judged: set[int] = set()
        self._began = time.monotonic()

    def last(self, seconds: float, turn_s: float) -> None:
        """Go on for so long, in turns of so long each; two turns at least."""
        while self._turn < 2 or time.monotonic() - self._began + turn_s <= seconds:
            self._turn += 1
            users = self._users()
            for user in users:
                user.start()
            self._storm(turn_s)
            for user in users:
                user.over.set()
            for user in users:
                user.join(PATIENCE_S)
                assert not user.is_alive(), f"{user.name} has no answer"
            self._rest()

    def _users(self) -> list[User]:
        run, ledger, seed = self._cluster.run, self._ledger, f"{self._seed}:{self._turn}"
        names = [f"t{self._turn}-u{number}" for number in range(1, SCRIPTERS + 1)]
        users: list[User] = [Scripter(name, run, ledger, seed) for name in names]
        users += [Programmer(kind, run, ledger, seed) for kind in ("malleable", "evolving")]
        return [*users, Operator("operator", run, ledger, seed)]

    # ---------------------------------------------------------------- faults

    def _storm(self, turn_s: float) -> None:
        """Hurt daemons until the turn is over."""
        end = time.monotonic() + turn_s
        while True:
            pause = self._chance.uniform(*LULL_S)
            if time.monotonic() + pause > end:
                time.sleep(max(0.0, end - time.monotonic()))
                return
            time.sleep(pause)
            self._see_segments()
            self._hurt_one()

    def _hurt_one(self) -> None:
        daemons = self._cluster.daemons()
        name = self._chance.choice([*sorted(daemons), "server", "server", "shim", "rank"])
        if name in ("shim", "rank"):
            self._hurt_program(name)
            return
        how = self._chance.choice(["kill", "kill", "freeze"])
        self._hurt[f"{how} {'server' if name == 'server' else name.split('-')[0]}"] += 1
        if how == "freeze":
            daemons[name].send_signal(signal.SIGSTOP)
            time.sleep(self._chance.uniform(*FROZEN_S))
            daemons[name].send_signal(signal.SIGCONT)
        elif name.startswith("launcher"):
            daemons[name].kill()  # its controller starts another
        else:
            self._cluster.kill(name)
            self._cluster.up()

    def _hurt_program(self, what: str) -> None:
        """Kill a rank of a program or the shim above it: that one fails, nobody else does."""
        for job in self._programs():
            ranks = self._cluster.ranks(job.number)
            if ranks and not job.hurt:
                rank, job.hurt = self._chance.choice(ranks).process, True
                self._hurt[f"kill {what}"] += 1
                with suppress(psutil.NoSuchProcess):
                    (rank.parent() or rank if what == "shim" else rank).kill()
                return

    def _programs(self) -> list[Told]:
        found = [job for job in self._ledger.jobs.values() if job.number not in self._judged]
        return [job for job in found if job.folder is not None]

    def _see_segments(self) -> None:
        for job in self._programs():
            self._cluster.ranks(job.number)

    # ---------------------------------------------------------------- rest

    def _rest(self) -> None:
        """Let everything end; then everything must hold."""
        for job in self._ledger.jobs.values():
            if job.folder is not None:
                (job.folder / "stop").touch()
        try:
            wait_until(self._over, timeout=PATIENCE_S, every=0.2, what="the end of all jobs")
        except AssertionError as error:
            left = [self._cluster.report(job.id) for job in self._cluster.client.jobs()]
            raise AssertionError("\n\n".join([str(error), *left])) from None
        self._whole()
        told = [(job.number, job.name) for job in self._ledger.jobs.values()]
        found = at_rest(self._cluster, told)
        self._judge(found)
        self._tell(len(found.jobs))
        assert not self._ledger.faults, self._ledger.faults

    def _over(self) -> bool:
        """Whether no job is open; what waits for a user or an operator is let go on."""
        client = self._cluster.client
        try:
            for node in client.nodes():
                if node.state in ("DRAINING", "DRAINED"):
                    client.resume(node.name)
            jobs = client.jobs()
            for job in jobs:
                self._let_go(job)
        except ClientError:
            return False  # between two states; it is looked at again
        return not jobs

    def _let_go(self, job: Job) -> None:
        if job.state == "HELD":
            self._cluster.client.release(job.id)
        elif job.state == "SUSPENDED":
            self._cluster.client.resume_job(job.id)

    def _whole(self) -> None:
        cluster, client = self._cluster, self._cluster.client
        wait_until(lambda: not any(node.used for node in client.nodes()), what="free processors")
        wait_until(lambda: {n.state for n in client.nodes()} == {"UP"}, what="nodes that are up")
        daemons = list(cluster.daemons().values())
        wait_until(lambda: not zombies_below(daemons), what="no zombies")
        try:
            wait_until(lambda: not self._segments())
        except AssertionError:
            raise AssertionError(f"segments of shared memory are left: {self._left()}") from None
        self._logs.check("could not")

    def _segments(self) -> list[str]:
        return [name for name in self._cluster.segments if (SHARED_MEMORY / name).exists()]

    def _left(self) -> dict[str, list[str]]:
        """Return the segments that are left, with the programs that have them mapped."""
        left: dict[str, list[str]] = {name: [] for name in self._segments()}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                for name in segments_of([process.pid]) & left.keys():
                    left[name].append(f"{process.pid}: {' '.join(process.cmdline())}")
        return left

    def _tell(self, jobs: int) -> None:
        """A line of progress."""
        uses = self._cluster.uses.now
        passed = time.monotonic() - self._began
        print(
            f"{passed:6.0f} s: turn {self._turn}, {jobs} jobs, {self._hurt.total()} faults; "
            f"server {uses['server']}; controller {uses['node-n1']}",
            flush=True,
        )

    # ---------------------------------------------------------------- judgement

    def _judge(self, found: Evidence) -> None:
        """What was acknowledged, and is there, has ended once and as it should."""
        for number, job in self._ledger.jobs.items():
            if number not in self._judged:
                row = found.jobs[number]
                if job.folder is not None:
                    self._judge_program(job, row)
                else:
                    self._judge_script(job, row)
                self._judged.add(number)

    def _judge_program(self, job: Told, row: JobRow) -> None:
        assert job.folder is not None
        output = (job.folder / "out").read_text()
        good = (row.state, row.exit_code) == ("COMPLETED", 0) and "right to the end" in output
        failed = job.hurt and row.state in ("FAILED", "NODE_FAIL") and bool(row.record["reason"])
        assert good or failed, self._cluster.report(job.number)

    def _judge_script(self, job: Told, row: JobRow) -> None:
        assert job.places is not None
        places = Counter(job.places.read_text().split() if job.places.exists() else [])
        assert set(places.values()) <= {1}, f"job {job.number} ran twice: {row.record}"
        assert set(map(int, places)) <= set(row.allocation), (places, row.record)
        ended = (row.state, row.exit_code)
        well = ("FAILED" if job.code else "COMPLETED", job.code)
        assert ended == well or (job.cancelled and row.state == "CANCELLED"), row.record
        if row.state == "COMPLETED":
            assert set(map(int, places)) == set(row.allocation), (places, row.record)

    def summary(self) -> str:
        """What was done."""
        acts = ", ".join(f"{name} {times}" for name, times in sorted(self._ledger.acts.items()))
        hurt = ", ".join(f"{name} {times}" for name, times in sorted(self._hurt.items()))
        return f"{len(self._ledger.jobs)} jobs in {self._turn} turns; {acts}; {hurt}"
