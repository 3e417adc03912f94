"""Users who submit all the time, on a cluster whose daemons are killed at random."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

import psutil

from clusterkit.afterwards import at_rest
from clusterkit.cluster import Cluster
from clusterkit.logs import Logs
from pliant.client.api import Client
from testkit import wait_until

USERS = 3
#: Between a restart and the next kill, at most, seconds.
LULL_S = 0.6
#: Says where it runs, works for a moment, ends with its own code.
_PROGRAM = 'echo "$PLIANT_PROCESSOR" >> {file}; sleep 0.{tenths}; exit {code}'
PATIENCE_S = 60.0


class Storm:
    """Kills daemons of a cluster under load; what was acknowledged is judged afterwards."""

    def __init__(self, cluster: Cluster, folder: Path, seed: int) -> None:
        self._cluster, self._folder = cluster, folder
        self._chance = Random(seed)
        self._over = threading.Event()
        self._failures: list[BaseException] = []
        #: The codes that acknowledged jobs end with, by number; numbers and names as told.
        self.acknowledged: dict[int, int] = {}
        self._told: list[tuple[int, str]] = []

    def blow(self, kills: int) -> None:
        """Let users submit while so many daemons are killed, one after the other."""
        users = [
            threading.Thread(target=self._user, args=(number, seed), daemon=True)
            for number, seed in enumerate([self._chance.random() for _ in range(USERS)])
        ]
        for user in users:
            user.start()
        for _ in range(kills):
            time.sleep(self._chance.uniform(0.0, LULL_S))
            self._kill()
            self._cluster.up()
        self._over.set()
        for user in users:
            user.join(PATIENCE_S)
            assert not user.is_alive(), "a user has no answer"
        assert not self._failures, self._failures

    def _user(self, number: int, seed: float) -> None:
        chance = Random(seed)
        try:
            with Client(str(self._cluster.run)) as client:
                for turn in range(1_000_000):
                    if self._over.is_set():
                        return
                    code = chance.randrange(8)
                    file = self._folder / f"{number}.{turn}"
                    told = client.submit(
                        "/bin/sh",
                        "-c",
                        _PROGRAM.format(file=file, tenths=chance.randrange(4), code=code),
                        sizes=chance.choice([1, 1, 2, 3]),
                        type="mpi",
                        name=file.name,
                        stdout="/dev/null",
                    )
                    self.acknowledged[told] = code
                    self._told.append((told, file.name))
                    time.sleep(chance.uniform(0.0, 0.3))
        except BaseException as error:
            self._failures.append(error)

    def _kill(self) -> None:
        """Mostly the server; also controllers and launchers, with or without what is below."""
        names = [name for name in self._cluster.daemons() if name != "server"]
        name = "server" if self._chance.random() < 0.6 else self._chance.choice(sorted(names))
        if name.startswith("launcher"):
            try:
                self._cluster.daemons()[name].kill()  # its controller starts another
            except psutil.NoSuchProcess:
                pass
        else:
            self._cluster.kill(name)

    def settle(self) -> Counter[str]:
        """Wait for the end of all jobs; nothing is lost, doubled or leaked. How they ended.

        Raises:
            AssertionError: something is.
        """
        client = self._cluster.client
        numbers = sorted(self.acknowledged)
        self._all_ended(client, numbers)
        wait_until(lambda: not any(n.used for n in client.nodes()), what="free processors")
        found = at_rest(self._cluster, self._told)
        Logs(self._cluster.state).check()
        assert len(found.jobs) == len(numbers) + 1, "there are jobs besides these and the canary"
        for number in numbers:
            job = found.jobs[number]
            places = Counter((self._folder / job.name).read_text().split())
            # All of them, unless one has failed before another has said that it is there.
            assert set(map(int, places)) <= set(job.allocation), (places, job.record)
            assert set(places.values()) == {1}, f"job {number} ran twice: {job.record}"
            code = self.acknowledged[number]
            state = "FAILED" if code else "COMPLETED"
            assert (job.state, job.exit_code) == (state, code), job.record
        return Counter(found.jobs[number].state for number in numbers)

    def _all_ended(self, client: Client, numbers: list[int]) -> None:
        """Wait for the end of all jobs, as long as one after the other ends."""
        left = set(numbers)

        def fewer() -> bool:
            before = len(left)
            left.intersection_update(job.id for job in client.jobs())
            return len(left) < before

        while left:
            try:
                wait_until(
                    fewer, timeout=PATIENCE_S, every=0.2, what=f"the end of {len(left)} jobs"
                )
            except AssertionError as error:
                reports = [self._cluster.report(number) for number in sorted(left)[:5]]
                raise AssertionError("\n\n".join([str(error), *reports])) from None
