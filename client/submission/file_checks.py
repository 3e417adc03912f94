"""Check the program, the directory and the files of a job before the server is asked.

The job runs on nodes that share these files with this host, so a file that is wrong here is wrong
on the nodes. The check turns a job that would fail later into an immediate error of the command.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence

from pliant.client.client_errors import SubmitError, UsageError
from pliant.core.support.input_limits import MAX_ARGUMENT_BYTES

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import Any

#: Bytes that the controller's own variables may need, of the limit of all arguments.
_RESERVED_BYTES = 16 * 1024

_INTERPRETERS = frozenset(
    ["python", "pypy", "sh", "bash", "dash", "ksh", "zsh", "perl", "ruby", "julia"]
)

#: Options of interpreters that take a value.
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs", "-o", "+o"})

#: ``-m MODULE``, also behind other letters.
_MODULE = r"-[A-Za-z]*?m(.*)"

#: What may be meant as a pattern in the name of a file, also with a width such as ``%4j``.
_PATTERN = r"(?a)%(?:%|[0-9]*[A-Za-z])"

#: The patterns in names of files that the server and the nodes replace, and ``%%`` for a percent.
_KNOWN_PATTERNS = ("%j", "%A", "%a", "%x", "%u", "%N", "%n", "%t")

#: Modules that run a program which follows.
_RUNNERS = frozenset({"mpi4py", "cProfile", "trace"})


#: Ends of the names of scripts, whose jobs have the type ``script`` unless another one is chosen.
SCRIPT_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".job")


def find_program(word: str, search_path: str, directory: str) -> str:
    """Return the absolute path of a program, which is searched for as a shell does.

    Unlike a shell, and as sbatch, this also finds a script in ``directory`` without ``./``, unless
    PATH has a program of its name.

    Raises:
        UsageError: the name of the program is empty.
        SubmitError: there is no such program, or it cannot be executed.
    """
    if not word:
        raise UsageError("program: its name is empty; name the program to run")
    if "/" not in word:
        if found := find_in_path(word, search_path, directory):
            return found
        here = os.path.join(directory, word)
        if not os.path.isfile(here) or not (word.endswith(SCRIPT_SUFFIXES) or _shebang(here)):
            remedy = (
                f"write ./{word}" if os.path.exists(here) else "check its name, or give its path"
            )
            raise SubmitError("program", f"{word!r} is not in PATH ({search_path})", remedy)
    return os.path.join(directory, word)


def find_in_path(word: str, search_path: str, directory: str) -> str:
    """Return the path of an executable file in one of the folders of PATH; empty if none has it.

    Args:
        word: the name of the executable file, without a slash.
        search_path: the value of PATH.
        directory: the directory that an empty or relative folder of PATH is relative to.
    """
    for folder in search_path.split(":"):
        path = os.path.join(directory, folder or ".", word)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.normpath(path)
    return ""


def check_program(path: str, *, script: bool) -> list[str]:
    """Return the command line that executes a program; a script need not be executable.

    Raises:
        SubmitError: the program is missing, not a file, or cannot be executed.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise SubmitError("program", f"{path}: {_why(error)}", "check its name") from None
    if not stat.S_ISREG(mode):
        raise SubmitError("program", f"{path} is not a file", "name the program to run")
    _check_lines(path)
    interpreter = _shebang(path)
    if interpreter and not os.path.exists(interpreter[0]):
        raise SubmitError(
            "program",
            f"{path}: its interpreter {interpreter[0]} does not exist",
            "correct its first line",
        )
    if os.access(path, os.X_OK):
        if not script or interpreter or _is_elf(path):
            return [path]
    elif not script:
        raise SubmitError(
            "program",
            f"{path} is not executable",
            f"chmod +x it, or name its interpreter: jobsub python {os.path.basename(path)}",
        )
    if not os.access(path, os.R_OK):
        raise SubmitError("program", f"{path} cannot be read", f"chmod +r {path}")
    return [*(interpreter or ["/bin/sh"]), path]


def _check_lines(path: str) -> None:
    """Check that a script has no Windows line ends, because its interpreter would not be found."""
    try:
        with open(path, "rb") as script:
            line = script.readline(256)
    except OSError:
        return  # what cannot be read is said of elsewhere
    if line.startswith(b"#") and line.endswith(b"\r\n"):
        name = os.path.basename(path)
        raise SubmitError(
            "program",
            f"{path}: its lines end with CR LF, as in Windows",
            f"convert it: sed -i 's/\\r$//' {name}",
        )


def _shebang(path: str) -> list[str]:
    try:
        with open(path, "rb") as script:
            line = script.readline(256)
    except OSError:
        return []
    if not line.startswith(b"#!"):
        return []
    return os.fsdecode(line[2:].strip()).split(maxsplit=1)


def _is_elf(path: str) -> bool:
    try:
        with open(path, "rb") as program:
            return program.read(4) == b"\x7fELF"
    except OSError:
        return False


def current_directory() -> str:
    """Return the absolute path of the directory of this process.

    Raises:
        SubmitError: the directory has been removed.
    """
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise SubmitError("chdir", "this directory has been removed", "cd to another") from None


def check_directory(path: str) -> str:
    """Return the absolute path of ``path``, the directory in which a job is to run.

    Raises:
        SubmitError: the directory is missing or cannot be entered.
    """
    absolute = os.path.abspath(path)
    if not os.path.isdir(absolute):
        what = "is not a directory" if os.path.exists(absolute) else "does not exist"
        raise SubmitError("chdir", f"{absolute} {what}", "make it, or name another")
    if not os.access(absolute, os.X_OK):
        raise SubmitError("chdir", f"{absolute} cannot be entered", "chmod +x it, or name another")
    return absolute


def check_output(field: str, path: str, directory: str) -> str:
    """Return the absolute path of an output file, after checking that it can be written.

    A folder with a pattern such as ``%j`` is not checked, because its name is not known yet.

    Args:
        field: the name of the option, for errors.
        path: the path as the user wrote it.
        directory: the directory to which a relative path refers.

    Raises:
        SubmitError: the file is a directory or cannot be written, its folder does not exist, or its
            name has an unknown pattern.
    """
    check_patterns(field, path)
    absolute = os.path.join(directory, path)
    folder = os.path.dirname(absolute)
    if os.path.isdir(absolute) or path.endswith("/"):
        raise SubmitError(field, f"{absolute} is a directory", "name a file, as in out-%j.txt")
    if "%" in folder:
        return absolute  # the server knows it when it fills it in
    if not os.path.isdir(folder):
        from shlex import quote  # here, because only this error needs it

        remedy = f"mkdir -p {quote(folder)}, or name another"
        raise SubmitError(field, f"the directory {folder} does not exist", remedy)
    if os.path.exists(absolute):
        if not os.access(absolute, os.W_OK):
            raise SubmitError(
                field, f"{absolute} cannot be written", f"chmod +w, or another {field}"
            )
    elif not os.access(folder, os.W_OK | os.X_OK):
        raise SubmitError(
            field, f"the directory {folder} cannot be written", f"name another with --{field}"
        )
    return absolute


def check_patterns(field: str, path: str) -> None:
    """Check that a file name has only known patterns, so that no file is called ``%z``.

    A percent that is not followed by a letter, or by digits and a letter, stands for itself.

    Raises:
        SubmitError: the name has an unknown pattern.
    """
    for found in re.findall(_PATTERN, path):
        if found not in {"%%", *_KNOWN_PATTERNS}:
            raise SubmitError(
                field,
                f"{path}: there is no pattern {found}",
                f"there are {' '.join(_KNOWN_PATTERNS)}; write %% for a percent sign",
            )


def output_path(job: Mapping[str, Any], number: int) -> str:
    """Return the output file of a submitted job.

    For an array, patterns of the task, such as ``%a``, are kept.

    Args:
        job: the job, as in the request that submitted it.
        number: the number of the job.
    """
    path = str(job["stdout"]).replace("%A", str(number))
    return path if job.get("array") else path.replace("%j", str(number))


def check_input(path: str, directory: str) -> str:
    """Return the absolute path of an input file, after checking that it can be read.

    A path with a pattern such as ``%j`` is not checked if no such file exists.

    Raises:
        SubmitError: the file is missing, is a directory or cannot be read, or its name has an
            unknown pattern.
    """
    absolute = os.path.join(directory, path)
    if "%" in absolute and not os.path.exists(absolute):
        check_patterns("input", path)
        return absolute
    if os.path.isdir(absolute) or not os.access(absolute, os.R_OK):
        raise SubmitError("input", f"{absolute} cannot be read", "check its name and permissions")
    return absolute


def default_name(program: str, arguments: Sequence[str]) -> str:
    """Return the default name of a job: the name of its program or script.

    If an interpreter runs, the script or module among its arguments gives the name.
    """
    name = os.path.basename(program)
    if (name.rstrip("0123456789.") if name.startswith("py") else name) not in _INTERPRETERS:
        return name
    words = iter(arguments)
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return os.path.basename(word) or name
        elif word.startswith("--"):
            continue
        elif name.startswith("py") and (module := re.fullmatch(_MODULE, word)):
            found = module[1] or next(words, "")
            if found not in _RUNNERS:
                return found or name
        elif word == "-" or word.endswith("c"):
            break
    return name


def check_limits(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Check that arguments and environment are not longer than the system allows.

    Raises:
        SubmitError: together, they are too long.
    """
    total = 0
    strings = [("argument", word) for word in argv]
    strings += [("environment", f"{name}={value}") for name, value in env.items()]
    for field, text in strings:
        size = len(os.fsencode(text)) + 1
        total += size + 8  # and a pointer to it
        if "\0" in text:
            raise SubmitError(field, f"{text[:40]!r} holds a NUL character", "leave it out")
        if size > MAX_ARGUMENT_BYTES:
            raise SubmitError(
                field,
                f"{text[:40]!r}... has {size} bytes, the system takes {MAX_ARGUMENT_BYTES}",
                "put it into a file",
            )
    limit = os.sysconf("SC_ARG_MAX") - _RESERVED_BYTES
    if total > limit:
        raise SubmitError(
            "argument",
            f"arguments and environment have {total} bytes, the system takes {limit}",
            "put them into a file, or export less (--export)",
        )


def current_umask() -> int:
    """Return the umask of this process without changing it, as other threads share it."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o022


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
