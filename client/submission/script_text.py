"""Scripts that are given as text, and checks of a job's dependencies and signal."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from pliant.client.client_errors import SubmitError, UsageError

_SHELL = r"(ba|da|k|z)?sh"


def script_words(text: str, arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs a script given as text.

    The text is passed as an argument to the interpreter that its first line names.

    Raises:
        SubmitError: the first line names an interpreter that takes no script as an argument.
    """
    first = text.partition("\n")[0]
    words = first[2:].split(maxsplit=1) if first.startswith("#!") else ["/bin/sh"]
    if len(words) > 1 and os.path.basename(words[0]) == "env":
        words = words[1].split()
    name = os.path.basename(words[0]) if words else ""
    if re.fullmatch(_SHELL, name):
        return [*words, "-c", text, "script", *arguments]
    if name.startswith(("python", "pypy")):
        return [*words, "-c", text, *arguments]
    raise SubmitError(
        "script",
        f"{first!r}: only scripts of shells and of Python can be read from standard input",
        "save it to a file, and submit this",
    )


def program_of(
    argv: Sequence[str], kind: str | None, name: str, script: str | None
) -> tuple[Sequence[str], str | None, str]:
    """Return the command line, type and name of a job.

    The program of the job is the text ``script``. If ``script`` is None, the program is the first
    element of ``argv``.

    Raises:
        UsageError: there is neither a program nor a script.
        SubmitError: the interpreter of the script takes no script as an argument.
    """
    if script is not None:
        return script_words(script, argv), kind or "script", name or "script"
    if not argv:
        raise UsageError("no program: name one, with its arguments")
    return argv, kind, name


def check_conditions(
    dependency: str, signal: str, time_limit_s: float | None, array: str = ""
) -> None:
    """Check a job's dependencies, the signal before its time limit, and the tasks of an array.

    Raises:
        UsageError: a dependency or the signal cannot be read, or a signal has no time limit; the
            message names the option.
    """
    if dependency:
        from pliant.core.values.dependencies import parse_dependencies

        try:
            parse_dependencies(dependency)
        except ValueError as error:
            raise UsageError(f"--dependency: {error}") from None
    if signal:
        from pliant.core.model.warning_signal import parse_warning

        try:
            parse_warning(signal)
        except ValueError as error:
            raise UsageError(f"--signal: {error}") from None
        if time_limit_s is None:
            raise UsageError(f"--signal {signal} is sent before the time limit: add --time")
    if array:
        from pliant.core.arrays.task_numbers import parse_array

        try:
            parse_array(array)
        except ValueError as error:
            raise UsageError(f"--array: {error}") from None
