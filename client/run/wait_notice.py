"""Report on stderr that an interactive job waits for processors, and when it has started."""

from __future__ import annotations

import sys
import threading

from pliant.client.client_errors import ClientError
from pliant.client.connection import Connection

#: Seconds until the first look at the job, and between two looks. Most jobs have started by then.
INTERVAL_S = 1.0


class WaitNotice:
    """Tells the user that a job is waiting; a thread asks the server whether it has started."""

    def __init__(self, number: int, sizes: str, *, line_end: str = "\n") -> None:
        """Start the thread.

        Args:
            number: the number of the job.
            sizes: the numbers of processors with which the job can start, as text.
            line_end: the end of a line on the terminal; in raw mode it includes a carriage return.
        """
        self._number, self._sizes, self._line_end = number, sizes, line_end
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="wait-notice", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Return whether the thread still waits for the start of the job."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the thread, because the job has ended or nobody waits for it."""
        self._stopped.set()
        self._thread.join(INTERVAL_S)  # a request may take longer, and ends with the process

    def _work(self) -> None:
        is_told = False
        with Connection() as link:
            while not self._stopped.wait(INTERVAL_S):
                try:
                    (job,) = link.request("jobs", ids=[self._number], all=True)["jobs"]
                except (ClientError, ValueError):
                    continue  # the thread that waits for the end reports it
                if job["start"] is None and job["state"] in ("PENDING", "HELD"):
                    if not is_told:
                        self._write(f"waits for {self._wanted()}: {job['reason']}")
                    is_told = True
                    continue
                if is_told and job["start"] is not None:
                    self._write("has started")
                return

    def _wanted(self) -> str:
        return "1 processor" if self._sizes == "1" else f"{self._sizes} processors"

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(f"pliant run: job {self._number} {text}{self._line_end}")
            sys.stderr.flush()
        except OSError:
            pass  # nobody reads it
