"""The MPI library that jobs need: whether there is one, and what helps where there is none."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from types import TracebackType

#: What helps, in the words of every place that notices.
REMEDY = "install one with `pip install 'pliant[mpich]'`, or load your own MPI"

#: What mpi4py says without one.
_COMPLAINT = b"cannot load MPI library"
#: How much of a job's output is searched for that.
_TAIL_BYTES = 1 << 16

#: mpi4py looks for the library when it is imported; MPI itself is not to be started.
_TRIAL = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI"


class Library:
    """A trial in the background; while entered it may run."""

    def __init__(self) -> None:
        self._trial: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Library:
        try:
            self._trial = subprocess.Popen(
                [sys.executable, "-c", _TRIAL],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError:
            pass  # whoever needs it will hear of it
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def complaints(self, timeout_s: float = 2.0) -> list[str]:
        """Return what a user should know; mostly nothing."""
        if self._trial is None:
            return []
        try:
            said = self._trial.communicate(timeout=timeout_s)[1]
        except subprocess.TimeoutExpired:
            return []
        finally:
            self._end()
        return [f"MPI programs will not start: mpi4py finds no MPI library; {REMEDY}"] * (
            _COMPLAINT in said
        )

    def _end(self) -> None:
        trial, self._trial = self._trial, None
        if trial is not None:
            trial.kill()
            trial.communicate()


def missed_library(output: str) -> bool:
    """Return whether a job says at the end of its output that it found no MPI library.

    Only a regular file is read. A device may have no end, and opening a pipe waits for its writer
    or takes bytes from its reader.
    """
    try:
        if not stat.S_ISREG(os.stat(output).st_mode):
            return False
        handle = os.open(output, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):  # replaced since it was looked at
                return False
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return _COMPLAINT in file.read(_TAIL_BYTES)
    except OSError:
        return False  # on another host, or not there: the reason of the end must do
