"""The worlds that the root helper has started on this node, read from its records on disk."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from pliant.nodectl.host import cgroup, procfs
from pliant.nodectl.host.procfs import ProcessIdentity


@dataclass(frozen=True, slots=True)
class Started:
    """A world (set of ranks) that this helper, or an earlier one, has started on this node."""

    world: str
    folder: str
    uid: int
    subreaper: ProcessIdentity
    shim: ProcessIdentity

    def to_line(self) -> str:
        """Return the record of these ranks as it is stored in a file: one line."""
        numbers = (self.subreaper.pid, self.subreaper.start, self.shim.pid, self.shim.start)
        return " ".join(map(str, (self.folder, self.uid, self.subreaper.boot, *numbers))) + "\n"

    @classmethod
    def from_line(cls, world: str, line: str) -> Started:
        """Read the record of the ranks called ``world`` from its line.

        Raises:
            ValueError: the record is damaged.
        """
        folder, uid, boot, *numbers = line.split()
        subreaper, subreaper_start, shim, shim_start = map(int, numbers)
        identities = (
            ProcessIdentity(boot, subreaper, subreaper_start),
            ProcessIdentity(boot, shim, shim_start),
        )
        return cls(world, folder, int(uid), *identities)

    def shim_fields(self) -> dict[str, int]:
        """Return the process id and start time of the shim, for answers to the controller."""
        return {"shim": self.shim.pid, "start": self.shim.start}

    def end(self) -> None:
        """Order the subreaper to end all processes of these ranks; do nothing if it has ended."""
        send_signal(self.subreaper, signal.SIGTERM)

    def kill_without_subreaper(self) -> None:
        """Kill all processes of these ranks that can be found, after their subreaper was killed."""
        cgroup.kill(self.shim)
        if self.shim.alive():
            for pid in (*procfs.descendants(self.shim.pid), self.shim.pid):
                who = ProcessIdentity.of(pid)
                if who is not None:
                    send_signal(who, signal.SIGKILL)


def send_signal(who: ProcessIdentity, number: int) -> None:
    """Send a signal to a process; do nothing if its id belongs to another process now."""
    try:
        handle = os.pidfd_open(who.pid)
    except OSError:
        return
    try:
        # The handle is of the process that had the number when it was opened.
        if who.alive():
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass  # it has just ended
    finally:
        os.close(handle)
