"""Launch the user's program: all steps between `fork` and `exec`, and their errors.

A failed launch exits with the codes of shells, 127 (not found) or 126 (found, but not usable). It
also writes one line, which names the file, to a pipe that the shim reads.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import signal
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from pliant.core.support.base_error import PliantError
from pliant.nodectl.host import process_limit
from pliant.nodectl.host.cpus import format_cpus
from pliant.nodectl.shim.staging import staged_folder
from pliant.nodectl.shim.staging.staged_folder import StagedFolderError
from pliant.nodectl.world_folder import NOT_FOUND, NOT_USABLE, StartRequest, to_bytes, to_text

_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36

#: If the memory of a node is exhausted, the kernel should kill ranks rather than daemons.
_OOM_SCORE = b"500"

#: A longer line might be mixed with that of another rank (PIPE_BUF is 4096).
_MAX_REASON = 1000

#: The signals that a shim handles.
HANDLED = (signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)

#: CPUs of the launcher before any shim was forked. The present ones of a shim would not do: its
#: control group may have fewer at the moment than for its next world.
_INITIAL_CPUS = os.sched_getaffinity(0)

_libc = ctypes.CDLL(None, use_errno=True)


class LaunchError(PliantError):
    """A program cannot be started; the text is for the user."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.exit_code = exit_code

    @classmethod
    def from_os_error(cls, what: str, path: str, error: OSError) -> LaunchError:
        """Return an error whose text names ``what``, its path and the cause."""
        missing = error.errno in {errno.ENOENT, errno.ENOTDIR}
        text = os.strerror(error.errno) if error.errno else str(error)
        if error.errno == errno.ELOOP:
            text = "it is a symbolic link, which is not followed"
        return cls(f"{what} {_printable(path)}: {text}", NOT_FOUND if missing else NOT_USABLE)

    def on_node(self, request: StartRequest) -> LaunchError:
        """Return a copy of this error that names the node and, for a missing file, the remedy."""
        node = f"node {request.node_name}: " if request.node_name else ""
        remedy = ""
        if self.exit_code == NOT_FOUND and not request.stage:
            remedy = "; use a folder that all nodes share, or send the files with jobsub --stage"
        elif self.exit_code == NOT_FOUND:
            remedy = "; it is not among the files of jobsub --stage"
        return LaunchError(f"{node}{self.reason}{remedy}", self.exit_code)


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """The program of one rank, its environment, and the descriptors that it inherits."""

    request: StartRequest
    environment: dict[str, str]
    keep: tuple[int, ...]
    failures: int
    #: CPUs on which the rank may run; empty if it is not bound.
    cpus: Sequence[int] = ()
    #: CPUs that the rank inherits instead.
    inherited_cpus: Sequence[int] = ()
    #: Open input, output and error of the rank, instead of files; input -1 for ``/dev/null``.
    stdio: tuple[int, int, int] | None = None
    #: The number of the rank in its world, for the names of its files.
    rank: int = 0
    #: Folder of an interactive session, which gives the rank its input or terminal; empty if none.
    session: str = ""


def become_subreaper() -> None:
    """Make orphaned descendants children of this process."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def set_process_name(name: bytes) -> None:
    """Set the name of this process, at most 15 bytes, as `ps` and `top` show it."""
    _libc.prctl(_PR_SET_NAME, name, 0, 0, 0)


def start(spec: LaunchSpec) -> int:
    """Fork a process that executes the program of a rank; return the process id."""
    if not spec.inherited_cpus:
        return _fork(spec)
    with suppress(OSError):
        os.sched_setaffinity(0, spec.inherited_cpus)
    try:
        return _fork(spec)
    finally:
        os.sched_setaffinity(0, _INITIAL_CPUS)


def _fork(spec: LaunchSpec) -> int:
    parent = os.getpid()
    # A signal between fork and exec must neither run the shim's handlers nor be lost.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    try:
        pid = os.fork()
        if pid == 0:
            _run(spec, parent)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return pid


def truncate_outputs(request: StartRequest) -> None:
    """Truncate the output files of a new job before any of its ranks is started.

    A rank cannot do that itself: another one may have written to the file already. Errors are left
    to the ranks, which open the same files and report what is wrong.
    """
    ranks = [rank for rank, _ in request.ranks if not request.is_held(rank)]
    patterns = {path for path in (request.stdout, request.stderr) if path}
    paths = {request.file_of(pattern, rank) for pattern in patterns for rank in ranks}
    if not request.truncate_before or not any(map(_has_content, paths)):
        return
    truncate_files(paths, request.truncate_before)


def _has_content(path: str) -> bool:
    """Return whether a file exists and is not empty; True also if its size cannot be found out."""
    try:
        return os.stat(to_bytes(path)).st_size > 0
    except OSError as error:
        return error.errno not in {errno.ENOENT, errno.ENOTDIR}


def truncate_files(paths: Iterable[str], before: float) -> None:
    """Truncate regular files that were last modified before a time, in seconds since the epoch.

    Errors are ignored.
    """
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    for path in paths:
        try:
            handle = os.open(to_bytes(path), flags)
        except OSError:
            continue
        try:
            _lock(handle)
            found = os.fstat(handle)
            if stat.S_ISREG(found.st_mode) and found.st_mtime < before:
                os.ftruncate(handle, 0)
        except OSError:
            pass  # the file system may refuse; the ranks append then
        finally:
            os.close(handle)


def _lock(handle: int) -> None:
    """Lock an open output file until it is closed; give up after a second.

    Each node of a job empties the file before its own ranks start. Without the lock, a node that
    looked at the old file could empty it after ranks of another node have written. A program of
    the user that keeps the file locked must not hold up the shim.
    """
    for _ in range(100):
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            time.sleep(0.01)
        except OSError:  # the file system has no locks
            return
        else:
            return


def read_failures(pipe: int) -> dict[int, tuple[int, str]]:
    """Return what failed since the last call: exit code and reason, by the id of the process.

    Each process has failed to execute the program of a rank.

    Args:
        pipe: descriptor of the pipe into which such processes write.
    """
    found = {}
    try:
        while data := os.read(pipe, 1 << 16):
            for line in data.splitlines():
                pid, code, reason = json.loads(line)
                found[pid] = (code, reason)
    except BlockingIOError:
        pass
    return found


def _run(spec: LaunchSpec, parent: int) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        _die_with_parent(parent)
        _bind(spec.cpus)
        _prepare(spec)
        _inherit(spec.keep)
        _reset_signals()
        _execute(spec)
    except LaunchError as error:
        _report(spec.failures, error.exit_code, error.reason)
        os._exit(error.exit_code)
    except BaseException as error:
        _report(spec.failures, NOT_USABLE, f"cannot start: {type(error).__name__}: {error}")
        os._exit(NOT_USABLE)


def _report(pipe: int, code: int, reason: str) -> None:
    line = json.dumps((os.getpid(), code, reason[:_MAX_REASON])) + "\n"
    os.write(pipe, line.encode())


def _die_with_parent(parent: int) -> None:
    """Let the kernel kill this rank if its shim ends, because only the shim records its exit.

    Args:
        parent: the process id of the shim. If the shim has ended already, exit at once.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _bind(cpus: Sequence[int]) -> None:
    """Bind this rank to its CPUs before it executes the program, so that the program sees them."""
    if cpus:
        try:
            os.sched_setaffinity(0, cpus)
        except OSError as error:
            text = f"cannot bind to CPUs {format_cpus(cpus)}: {error.strerror}"
            raise LaunchError(text, NOT_USABLE) from error


def _prepare(spec: LaunchSpec) -> None:
    request = spec.request
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(_OOM_SCORE)
    except OSError:
        pass  # not essential
    process_limit.reserve_processes()
    os.umask(request.umask)
    if request.stage:
        _fetch_files(request)
    try:
        os.chdir(to_bytes(request.directory))
    except OSError as error:
        failed = LaunchError.from_os_error("working directory", request.directory, error)
        raise failed.on_node(request) from error
    if spec.stdio is None:
        _redirect(request, spec.rank, spec.session)
        return
    source, *outputs = spec.stdio
    if source < 0:
        source = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for number, handle in enumerate((source, *outputs)):
        os.dup2(handle, number)


def _fetch_files(request: StartRequest) -> None:
    """Unpack the staged files of the job, unless another rank has done so."""
    try:
        staged_folder.fetch(request)
    except (StagedFolderError, OSError) as error:
        raise LaunchError(f"node {request.node_name}: {error}", NOT_USABLE) from error


def _redirect(request: StartRequest, rank: int, session: str) -> None:
    if session:
        # Imported here, because few jobs are interactive, and otherwise all shims would load TLS.
        from pliant.nodectl.shim.interactive.relay import AttachError, attach, take_terminal

        try:
            source, is_terminal = attach(session, _INITIAL_CPUS)
        except AttachError as failure:
            raise LaunchError(str(failure), NOT_USABLE) from failure
        if is_terminal:
            take_terminal(source)
            for number in range(3):
                os.dup2(source, number)
            return
    else:
        name = request.file_of(request.stdin, rank) or os.devnull
        source = _open("input file", name, os.O_RDONLY)
    output = open_output("output file", request.file_of(request.stdout, rank))
    same = not request.stderr or request.stderr == request.stdout
    error = output if same else open_output("error file", request.file_of(request.stderr, rank))
    for number, handle in enumerate((source, output, error)):
        os.dup2(handle, number)


def open_output(what: str, path: str) -> int:
    """Open an output file for appending, and return its descriptor.

    All ranks and all executions of a job write to the file. `truncate_outputs` emptied it before
    the first rank of the job started.

    Args:
        what: what the file is for, for errors.
        path: the path of the file; empty for ``/dev/null``.

    Raises:
        LaunchError: the file cannot be opened, or is a named pipe that nobody reads.
    """
    return _open(what, path or os.devnull, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def _open(what: str, path: str, flags: int) -> int:
    """Open a file that the user named, and return its descriptor; never wait for a named pipe.

    Raises:
        LaunchError: the file cannot be opened, or is a named pipe that nobody reads.
    """
    flags |= os.O_NOFOLLOW | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(to_bytes(path), flags, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise LaunchError(f"{what} {_printable(path)}: nobody reads it", NOT_USABLE) from error
        raise LaunchError.from_os_error(what, path, error) from error
    if stat.S_ISDIR(os.fstat(handle).st_mode):
        raise LaunchError.from_os_error(what, path, OSError(errno.EISDIR, ""))
    os.set_blocking(handle, True)
    return handle


def _inherit(keep: Sequence[int]) -> None:
    """Let the program that is executed next inherit the descriptors in ``keep``, but no others.

    Python closes the others.
    """
    for handle in keep:
        os.set_inheritable(handle, True)


def _reset_signals() -> None:
    """Restore the default handlers of the signals that the shim handles, and unblock all signals.

    The launcher has restored the handlers of all other signals before.
    """
    for number in (*HANDLED, *_IGNORED_BY_PYTHON):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _execute(spec: LaunchSpec) -> NoReturn:
    request = spec.request
    if not request.argv:
        raise LaunchError("no program was given", NOT_USABLE)
    arguments = [to_bytes(argument) for argument in request.argv]
    environment = {to_bytes(name): to_bytes(value) for name, value in spec.environment.items()}
    refused: OSError | None = None
    for path in program_paths(arguments[0], environment):
        try:
            os.execve(path, arguments, environment)
        except FileNotFoundError as error:
            if os.path.exists(path):
                shown = _printable(to_text(path))
                raise LaunchError(f"{shown}: its interpreter is missing", NOT_FOUND) from error
        except (PermissionError, OSError) as error:
            if request.type == "script" and error.errno in {errno.EACCES, errno.ENOEXEC}:
                _execute_script(path, arguments, environment)
            if error.errno not in {errno.EACCES, errno.ENOTDIR}:
                raise LaunchError.from_os_error("program", to_text(path), error) from error
            refused = refused or error
    code = errno.ENOENT if refused is None else refused.errno
    failed = LaunchError.from_os_error("program", request.argv[0], OSError(code, ""))
    raise failed.on_node(request)


def program_paths(name: bytes, environment: dict[bytes, bytes]) -> Iterator[bytes]:
    """Yield the paths at which to look for a program.

    A name with a slash is the path itself; other names are looked up in the job's PATH.
    """
    if b"/" in name:
        yield name
        return
    for folder in environment.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        yield os.path.join(folder or b".", name)


def _execute_script(path: bytes, arguments: list[bytes], environment: dict[bytes, bytes]) -> None:
    """Execute the interpreter of a script that the kernel refused to execute itself.

    It is the interpreter that the first line of the script names, or else ``/bin/sh``. Return if
    the script cannot be read.

    Raises:
        LaunchError: the interpreter cannot be executed.
    """
    try:
        with open(path, "rb") as file:
            first = file.readline(256)
    except OSError:
        return  # it is not readable either; the caller reports the first error
    words = first[2:].split(maxsplit=1) if first.startswith(b"#!") else []
    command = [word.strip() for word in words] or [b"/bin/sh"]
    try:
        os.execve(command[0], [*command, path, *arguments[1:]], environment)
    except OSError as error:
        raise LaunchError.from_os_error("interpreter", to_text(command[0]), error) from error


def _printable(path: str) -> str:
    """Return a path as one printable line, with all other bytes escaped."""
    shown = to_bytes(path).decode("utf-8", "backslashreplace")
    if shown.isprintable():
        return shown
    return shown.encode("unicode_escape").decode("ascii")
