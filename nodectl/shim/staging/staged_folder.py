"""The folder on a host in which a job with staged files runs.

All worlds of a run on a host share the folder, so that all ranks of the run there find the same
files, also those that a growth starts. Each shim holds a shared lock on it. The first rank unpacks
the files while the others wait, and the last shim returns the outputs. A separate process,
`pliant.nodectl.staged_transfer`, carries out both transfers, because a shim must not load gRPC.

The folder is always below ``/tmp``, where only root and the user can rename it. If the controller
chose the place, it could exchange the programs that run as the user.

==============  ================================================================================
entry           content
==============  ================================================================================
lock            locked by each shim of the run, shared
fetch           locked by the rank that unpacks the files
before          the states of the unpacked files as JSON; exists when all are unpacked
work            the working directory of the job
==============  ================================================================================
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import sys
from collections.abc import Mapping
from dataclasses import replace

from pliant.core.support.base_error import PliantError
from pliant.nodectl.world_folder import StartRequest, to_bytes
from pliant.protos.staging.environment_variables import STAGE_ARCHIVE

#: Names in the folder.
LOCK, FETCH, BEFORE, WORK = "lock", "fetch", "before", "work"
#: The variable that tells a transfer the path of the folder.
STAGE_FOLDER = "PLIANT_STAGE_FOLDER"
_TRANSFER = "pliant.nodectl.staged_transfer"
_MAX_PROBLEM = 1000


class StagedFolderError(PliantError):
    """The folder cannot be used; the text is for the user."""


def use_staged_folder(request: StartRequest) -> StartRequest:
    """Return a request whose ranks run in the folder of staged files, if the job has such files.

    Paths below the working directory of ``request`` are changed to paths below that folder.
    """
    if not request.environment.get(STAGE_ARCHIVE):
        return request
    folder = f"/tmp/pliant-stage-{os.getuid()}/{request.world.rpartition('.w')[0]}"
    work = os.path.join(folder, WORK)
    old = request.directory.rstrip("/") + "/"

    def moved(path: str) -> str:
        return os.path.join(work, path.removeprefix(old)) if path.startswith(old) else path

    variables = {name: request.environment[name] for name in _names(request.environment)}
    return replace(
        request,
        directory=work,
        argv=[moved(argument) for argument in request.argv],
        stdin=moved(request.stdin),
        stdout=moved(request.stdout),
        stderr=moved(request.stderr),
        stage={**variables, STAGE_FOLDER: folder},
    )


def _names(environment: Mapping[str, str]) -> list[str]:
    return [name for name in environment if name.startswith("PLIANT_")]


class StagedFolder:
    """The folder of a job's staged files on this host, which all shims of the job here share.

    The last one of these shims returns the outputs in it to the server.
    """

    def __init__(self, request: StartRequest) -> None:
        """Create the folder, or share it with the other shims of the job on this host.

        Raises:
            StagedFolderError: it belongs to another user, or its outputs are being returned.
            OSError: the folder cannot be created.
        """
        self._stage = request.stage
        self._path = request.stage[STAGE_FOLDER]
        _make_private(os.path.dirname(self._path))
        self._lock = self._hold()
        #: Id of the process that returns the outputs; 0 if none runs.
        self.returning = 0
        #: Why the return could not begin; empty if it could.
        self.problem = ""
        self._errors = -1
        self._is_done = False

    def _hold(self) -> int:
        """Take a shared lock on the folder, as other shims of the run do; return its descriptor."""
        while True:
            _make_private(self._path)
            name = os.path.join(self._path, LOCK)
            try:
                handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # the last shim of earlier processes has removed the folder
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if os.fstat(handle).st_nlink:
                    os.makedirs(os.path.join(self._path, WORK), mode=0o700, exist_ok=True)
                    return handle
            except BlockingIOError:
                os.close(handle)
                raise StagedFolderError(
                    "files of earlier processes of this job are still being returned from here"
                ) from None
            except OSError:
                os.close(handle)
                raise
            os.close(handle)

    def begin_return(self) -> bool:
        """Start the process that sends the outputs to the server, if this is the last shim here.

        Call this when no process of the job's ranks here is left, and again when the transfer has
        ended.

        Returns:
            Whether that process is running.
        """
        if self.returning or self._is_done:
            return bool(self.returning)
        self._is_done = True
        try:
            return self._start_return()
        except (OSError, ValueError) as error:
            # The job has ended, so its exits must be reported in any case.
            self.problem = f"staged files cannot be returned: {error}; they stay in {self._path}"
            return False

    def _start_return(self) -> bool:
        # Otherwise two shims that end at the same time would each find the lock of the other, and
        # neither would return the outputs.
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if not os.fstat(self._lock).st_nlink:
            return False  # another shim was faster
        self._errors, theirs = os.pipe2(os.O_CLOEXEC)
        try:
            self.returning = _spawn("store", self._stage, theirs)
        except (OSError, ValueError):
            os.close(self._errors)
            raise
        finally:
            os.close(theirs)
        return True

    def end_return(self, status: int) -> str:
        """Record that the transfer of the outputs to the server has ended.

        Args:
            status: the wait status of the process that transferred them.

        Returns:
            Why the transfer failed; empty if it succeeded.
        """
        self.returning = 0
        return _problem(self._errors, status, f"outputs stay in {self._path}/{WORK}")

    def close(self) -> None:
        """Close the folder, because the process of the shim may serve another job next."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def stop(self) -> None:
        """Stop sending the outputs, because this shim must end; they stay in the folder."""
        if self.returning:
            os.kill(self.returning, signal.SIGTERM)


def fetch(request: StartRequest) -> None:
    """Unpack the staged files, unless another rank has done so; called in each rank before exec.

    Raises:
        StagedFolderError: the files cannot be fetched or unpacked.
        OSError: the folder cannot be used.
    """
    path = request.stage[STAGE_FOLDER]
    handle = os.open(os.path.join(path, FETCH), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(os.path.join(path, BEFORE)):
            return
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        pid = _spawn("fetch", request.stage, theirs)
        os.close(theirs)
        problem = _problem(ours, os.waitpid(pid, 0)[1], "")
    finally:
        os.close(handle)
    if problem:
        raise StagedFolderError(problem)


def _spawn(action: str, stage: Mapping[str, str], errors: int) -> int:
    """Start a process that fetches staged files or returns outputs; return its id.

    Args:
        action: ``fetch`` or ``store``.
        stage: the environment variables that describe the files.
        errors: descriptor of the pipe to which the process writes an error.
    """
    flag = "-I" if sys.flags.isolated else "-P"
    variables = {to_bytes(name): to_bytes(value) for name, value in stage.items()}
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, flag, "-m", _TRANSFER, action],
            {**os.environb, **variables},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, null, 1),
                (os.POSIX_SPAWN_DUP2, errors, 2),
            ],
            setsigmask=(),
            setsigdef=(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1),
        )
    finally:
        os.close(null)


def _problem(errors: int, status: int, more: str) -> str:
    """Return, as one line, why a transfer has failed; empty if it succeeded.

    Args:
        errors: descriptor of the pipe with the error; it is closed.
        status: the wait status of the process.
        more: a text to add to the error.
    """
    text = os.read(errors, 1 << 16).decode(errors="replace") if errors >= 0 else ""
    os.close(errors)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return ""
    lines = text.strip().splitlines() or [f"the transfer of staged files ended with {code}"]
    return "; ".join(filter(None, (lines[-1][:_MAX_PROBLEM], more)))


def _make_private(path: str) -> None:
    """Make a folder that only this user can use; if it exists, check its owner and permissions."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise StagedFolderError(
                f"{path} belongs to another user, or others may use it: an administrator must "
                "remove it"
            ) from None
