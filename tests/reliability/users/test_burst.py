"""Case 62: a burst of submissions by several users' processes, and many who look.

``PLIANT_BURST=10000 PLIANT_LOOKERS=100`` is the long form.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from clusterkit.checker import settled
from clusterkit.cluster import Cluster
from clusterkit.commands import Said, run_command

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

BURST = int(os.environ.get("PLIANT_BURST", "300"))
LOOKERS = int(os.environ.get("PLIANT_LOOKERS", "10"))
USERS = 4
#: Whoever asks is done in this time, however long the burst is, seconds.
PATIENCE_S = 1500.0

#: Submits so many jobs, prints their numbers; who is told to come again does so.
USER = """
import sys, time
from pliant.client.api import Client
from pliant.client.client_errors import RequestError
with Client(sys.argv[1]) as client:
    for turn in range(int(sys.argv[2])):
        while True:
            try:
                print(client.submit("true", hold=bool(turn % 10), stdout="/dev/null"), flush=True)
                break
            except RequestError as error:
                if error.kind != "unavailable":
                    raise
                time.sleep(0.1)
"""


class Looker(threading.Thread):
    """Asks ``jobstat`` again and again."""

    def __init__(self, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._over = over
        self.said: list[Said] = []
        self.failures: list[BaseException] = []

    def run(self) -> None:
        try:
            while not self._over.is_set() or not self.said:
                self.said.append(run_command("jobstat", timeout=300))
        except BaseException as error:
            self.failures.append(error)


@pytest.mark.case(62)
def test_a_burst_of_submissions_is_accepted_while_queries_are_answered(cluster: Cluster) -> None:
    over = threading.Event()
    lookers = [Looker(over) for _ in range(LOOKERS)]
    for looker in lookers:
        looker.start()
    words = [sys.executable, "-c", USER, str(cluster.run), str(BURST // USERS)]
    users = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(USERS)]
    try:
        told = [user.communicate(timeout=PATIENCE_S)[0].split() for user in users]
    finally:
        for user in users:
            user.kill()  # which is nothing to those who are done
            user.wait()
    over.set()
    for looker in lookers:
        looker.join(PATIENCE_S)
        assert not looker.is_alive(), "jobstat has no answer"
    assert [user.returncode for user in users] == [0] * USERS
    numbers = {int(number) for each in told for number in each}
    assert len(numbers) == BURST // USERS * USERS
    assert [looker.failures for looker in lookers] == [[]] * LOOKERS
    assert {said.code for looker in lookers for said in looker.said} == {0}
    # Beside all those that are held, what may run did.
    for job in cluster.client.jobs(sorted(numbers)):
        if job.state != "HELD":
            ended = cluster.wait_for(job.id, lambda job: job.final, f"job {job.id} to end")
            assert ended.state == "COMPLETED", cluster.report(job.id)
    assert numbers == set(settled(cluster.state).jobs)
