"""Find out whether this node can start jobs again after a failure.

A node that fails to start a job reports this and is drained. The cause often goes away: a disk
has room again, or a user's processes have ended. So the controller tries the same things itself,
less often after each failure, and reports to the server when all of them work. It also tries once
when it starts, because an earlier controller may have been the one that failed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

logger = logging.getLogger("pliant.nodectl")

#: Seconds from the first failure to the first test; each further one doubles them, up to a limit.
FIRST_TEST_S, MAX_TEST_S = 4.0, 600.0
#: After this time without a failure the next one counts as the first again, seconds.
FORGET_S = 3600.0
#: Processes that a test starts at the same time, at most.
MAX_PROCESSES = 8


class StartSelfTest:
    """Tests whether this node can start jobs: once at first, and again after a failed start.

    After a failed start, the tests are repeated until one passes.
    """

    def __init__(
        self,
        folder: Path,
        slots: int,
        on_able: Callable[[], None],
        more: Callable[[], str] = str,
    ) -> None:
        """Plan the first test for the next heartbeat.

        Args:
            folder: the folder in which the controller writes orders.
            slots: how many ranks jobs can have on this node. A test starts ``slots`` + 1 processes,
                but at most ``MAX_PROCESSES``.
            on_able: called when a test has passed.
            more: another test, which returns what failed; runs in a thread.
        """
        self._folder, self._count = folder, min(slots + 1, MAX_PROCESSES)
        self._on_able, self._more = on_able, more
        self._failures = 0
        self._failed_at = -FORGET_S
        self._due: float | None = 0.0
        self._task: asyncio.Task[None] | None = None
        #: Whether the last test has passed and no start failed since.
        self.is_able = False

    def start_failed(self) -> None:
        """Record that a job could not be started, so that a self test follows later."""
        now = time.monotonic()
        self._failures = self._failures + 1 if now - self._failed_at < FORGET_S else 1
        self._failed_at, self.is_able = now, False
        self._due = now + self._wait_s()

    def test_if_due(self) -> None:
        """Start a test of whether this node can start jobs, if one is due.

        Called with each heartbeat.
        """
        is_due = self._due is not None and time.monotonic() >= self._due
        if is_due and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run())

    def _wait_s(self) -> float:
        return min(FIRST_TEST_S * 2.0 ** (max(self._failures, 1) - 1), MAX_TEST_S)

    async def _run(self) -> None:
        due = self._due
        problem = await asyncio.to_thread(find_problem, self._folder, self._count)
        problem = problem or await asyncio.to_thread(self._more)
        if self._due != due:
            return  # a start has failed meanwhile
        if problem:
            logger.warning("this node cannot start jobs yet: %s", problem)
            self._due = time.monotonic() + self._wait_s()
            return
        self._due, self.is_able = None, True
        self._on_able()


def find_problem(folder: Path, count: int) -> str:
    """Try to write a file and to start ``count`` processes, as the start of a job does.

    Returns:
        What failed; empty if nothing did.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # Without a name, so that nobody takes it for a world.
        handle = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, bytes(4096))
            os.fsync(handle)
        finally:
            os.close(handle)
        with ExitStack() as started:
            for _ in range(count):
                # It reads until its input is closed, which leaving the stack does.
                process = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
                started.enter_context(process)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return ""  # this file system has no such files: the next start is the test
        return f"{error.filename or 'start of a process'}: {error.strerror}"
    return ""
