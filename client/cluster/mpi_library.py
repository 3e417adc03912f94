"""Find out whether there is an MPI library, and return a warning with a remedy if there is none."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from types import TracebackType

#: The remedy, for all messages.
REMEDY = "install one with `pip install 'pliant[mpich]'`, or load your own MPI"

#: The error text of mpi4py without an MPI library.
_ERROR_TEXT = b"cannot load MPI library"
#: Bytes at the end of a job's output that are searched for the error text.
_TAIL_BYTES = 1 << 16

#: mpi4py loads the library when it is imported; MPI itself need not be initialized.
_PROBE = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI"


class LibraryProbe:
    """Within this context, finds out in the background whether mpi4py can load an MPI library."""

    def __init__(self) -> None:
        self._probe: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LibraryProbe:
        try:
            self._probe = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROBE],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError:
            pass  # a job that needs the library reports that it is missing
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def warnings(self, timeout_s: float = 2.0) -> list[str]:
        """Return a warning if mpi4py finds no MPI library, else an empty list.

        The result is also empty if this is not known after ``timeout_s`` seconds.
        """
        if self._probe is None:
            return []
        try:
            said = self._probe.communicate(timeout=timeout_s)[1]
        except subprocess.TimeoutExpired:
            return []
        finally:
            self._end()
        return [f"MPI programs will not start: mpi4py finds no MPI library; {REMEDY}"] * (
            _ERROR_TEXT in said
        )

    def _end(self) -> None:
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.kill()
            probe.communicate()


def library_was_missing(output: str) -> bool:
    """Return whether a job's output file ends with the message that no MPI library was found.

    ``output`` is the path of the file. Only a regular file is read: a device may have no end, and
    opening a pipe waits for its writer or takes bytes from its reader.
    """
    try:
        if not stat.S_ISREG(os.stat(output).st_mode):
            return False
        handle = os.open(output, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):  # replaced since it was looked at
                return False
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return _ERROR_TEXT in file.read(_TAIL_BYTES)
    except OSError:
        return False  # not there, or on another host: the reason of the job's end must suffice
