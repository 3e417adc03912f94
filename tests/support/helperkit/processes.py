"""Ending every process of a helper's host, also those that no daemon knows any more."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

from testkit import wait_until

#: Seconds in which processes should end what they have started, and themselves.
_GRACE_S = 5.0


def find_all_naming(folder: Path) -> list[psutil.Process]:
    """Return the processes whose arguments or environment name a folder.

    Subreapers and their shims have the arguments of the process that forks them, and ranks have the
    environment of their job. None of them inherits the mark of the test session.
    """
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            texts = [*process.cmdline(), *process.environ().values()]
            if any(str(folder) in text for text in texts):
                found.append(process)
    return found


def end_all_naming(folder: Path) -> None:
    """End the processes of `find_all_naming`: by SIGTERM, then by SIGKILL.

    After SIGTERM, each subreaper ends its world.
    """
    for process in find_all_naming(folder):
        with suppress(psutil.Error):
            process.terminate()
    with suppress(AssertionError):
        wait_until(lambda: not find_all_naming(folder), what="the end", timeout=_GRACE_S)

    def is_killed() -> bool:
        left = find_all_naming(folder)
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        return not left

    wait_until(is_killed, what="the end of killed processes")
