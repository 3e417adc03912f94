"""Check arguments of the Python client before anything is sent.

The server checks requests, too. These checks name the argument as the caller wrote it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pliant.client.client_errors import SubmitError, UsageError

#: Options of ``jobsub`` whose names differ from those of the Python client.
_PYTHON_NAMES = {
    "--begin": "begin_s",
    "--deadline": "deadline_s",
    "--error": "stderr",
    "--estimate": "estimate_s",
    "--export": "env",
    "--input": "stdin",
    "--output": "stdout",
    "--record-load": "record_load_s",
    "--resource": "resources",
    "--time": "time_limit_s",
}
#: One task of an array, and several.
_TASK = re.compile(r"[0-9]{1,18}_[0-9]{1,9}")
_TASKS = re.compile(r"[0-9]{1,18}_\[[0-9,:-]+\]")
_OPTION = re.compile(r"--[a-z][a-z-]*")


def fault(argument: str, expected: str, value: object) -> UsageError:
    """Return the error for an argument that has a wrong value.

    Args:
        argument: the name of the argument, as the caller wrote it.
        expected: a text that says which values are right.
        value: the wrong value.
    """
    return UsageError(f"{argument}: expected {expected}, got {value!r:.80}")


def is_number(value: object) -> bool:
    """Return whether a value is a finite number; ``bool`` does not count."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: object) -> bool:
    """Return whether a value is an ``int``; ``bool`` does not count."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_whole(argument: str, value: Any, least: int = 0, example: str = "") -> int:
    """Return ``value`` if it is a whole number of at least ``least`` and below 2**62.

    Raises:
        UsageError: the value is anything else. The message names the argument and the example.
    """
    if not is_whole(value) or not least <= value < 1 << 62:
        example = f", such as {example}" if example else ""
        raise fault(argument, f"a whole number of at least {least}{example}", value)
    return int(value)


def job_id(value: Any, argument: str = "number") -> int | str:
    """Return the id of a job, or the name of a task such as ``17_3``.

    Raises:
        UsageError: the value is anything else.
    """
    if isinstance(value, str) and _TASK.fullmatch(value):
        return value
    if not is_whole(value) or not 0 <= value < 1 << 62:
        expected = 'the id of a job, as submit() returns it, such as 12, or a task, such as "12_3"'
        raise fault(argument, expected, value)
    return int(value)


def job_ids(values: Iterable[Any], argument: str = "ids") -> list[int | str]:
    """Return the ids of several jobs, and names of tasks such as ``17_3`` or ``17_[5-10]``.

    Raises:
        UsageError: ``values`` is not iterable, or holds anything else.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise fault(argument, "ids of jobs, such as [12, 13]", values)
    return [
        value
        if isinstance(value, str) and _TASKS.fullmatch(value)
        else job_id(value, f"{argument}[{index}]")
        for index, value in enumerate(values)
    ]


def seconds(argument: str, value: Any) -> float | None:
    """Return ``value`` if it is None or a number of seconds of at least 0.

    Raises:
        UsageError: the value is anything else.
    """
    if value is not None and not (is_number(value) and value >= 0):
        raise fault(argument, "a number of seconds of at least 0, such as 7200, or None", value)
    return None if value is None else float(value)


def check_name(argument: str, value: Any, example: str) -> str:
    """Return ``value`` if it is a text that is not empty.

    Raises:
        UsageError: the value is anything else. The message names the argument and the example.
    """
    if not isinstance(value, str) or not value:
        raise fault(argument, f"a name, such as {example}", value)
    return value


def check_texts(argument: str, value: Any, example: str) -> list[str]:
    """Return ``value``, an iterable of texts such as names, as a list.

    Raises:
        UsageError: the value is a single text, or holds anything else.
    """
    if not _is_texts(value):
        raise fault(argument, f"a list of texts, such as {example}", value)
    return list(value)


def check_words(argv: Sequence[Any]) -> list[str]:
    """Return the words of a command, a program with its arguments, as texts.

    Paths in ``argv`` may be `os.PathLike`.

    Raises:
        UsageError: there is no program, or an argument is neither a text nor a path.
    """
    if not argv:
        raise UsageError('argv: there is no program; write submit("./solver", "input.dat")')
    if len(argv) == 1 and isinstance(argv[0], list | tuple):
        raise UsageError(
            f"argv: expected the program and its arguments one by one, got {argv[0]!r:.80}; write "
            "submit(*argv)"
        )
    found = []
    for index, word in enumerate(argv):
        if not isinstance(word, str | os.PathLike):
            raise fault(f"argv[{index}]", "a text or a path (write str(...))", word)
        found.append(os.fsdecode(word))
    return found


def check_sizes(value: Any) -> str:
    """Return the numbers of processors of a job as text; the whole number 4 becomes ``"4"``.

    The notation of a text such as ``"1-8:pow2"`` is checked later.

    Raises:
        UsageError: the value is neither a text nor a whole number.
    """
    if not (isinstance(value, str) or is_whole(value)):
        raise fault("sizes", 'a number of processors or a text, such as 4 or "1-8:pow2"', value)
    return str(value)


def _is_texts(value: Any) -> bool:
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    return is_list and all(isinstance(each, str) for each in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def _is_seconds(value: Any) -> bool:
    return is_number(value) and value > 0


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_environment(value: Any) -> bool:
    return isinstance(value, Mapping) and _is_texts([*value.keys(), *value.values()])


def _is_number_or_text(value: Any) -> bool:
    return isinstance(value, str) or is_number(value)


def _are_sizes(value: Any) -> bool:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return is_list and all(is_whole(each) and each > 0 for each in value)


def _is_count(value: Any) -> bool:
    return is_whole(value) and value >= 0


Check = tuple[Callable[[Any], bool], str]
_TEXT: Check = (_is_text, "a text")
_PATH: Check = (_is_path, "a path")
_SECONDS: Check = (_is_seconds, "a number of seconds above 0, such as 7200")
_FLAG: Check = (_is_flag, "True or False")
_TEXTS: Check = (_is_texts, "a list of texts")

#: The type of each option of ``submit``, and how to write it.
_OPTIONS: dict[str, Check] = {
    **dict.fromkeys(("name", "type", "account", "comment", "signal"), _TEXT),
    **dict.fromkeys(("constraint", "nodelist", "exclude", "bind", "open_mode"), _TEXT),
    **dict.fromkeys(("dependency", "array", "notify", "notify_on"), _TEXT),
    **dict.fromkeys(("when_cut_off", "speedup", "grow_if", "script"), _TEXT),
    **dict.fromkeys(("chdir", "stdin", "stdout", "stderr"), _PATH),
    **dict.fromkeys(("time_limit_s", "estimate_s", "deadline_s", "deadline_at"), _SECONDS),
    **dict.fromkeys(("begin_s", "begin_at", "record_load_s"), _SECONDS),
    **dict.fromkeys(("hold", "requeue"), _FLAG),
    **dict.fromkeys(("resources", "gres"), _TEXTS),
    "env": (_is_environment, 'texts by name, such as {**os.environ, "OMP_NUM_THREADS": "4"}'),
    "prefer": (lambda value: is_whole(value) and value > 0, "a number of processors, such as 4"),
    "priority": (is_whole, "a whole number, such as 10"),
    "gpus": (_is_count, "a number of GPUs, such as 1"),
    "mem_per_cpu": (_is_number_or_text, 'bytes or a text, such as "4G"'),
    "profit": (_is_number_or_text, 'a number or a text, such as "1000:soft=0.25"'),
    "components": (_are_sizes, "a list of numbers of processors, such as [4, 2]"),
}


def submit_options(options: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Return options of ``submit`` whose names and types are right; paths become texts.

    Args:
        options: the options by name. None stands for the default.
        known: the names of all options.

    Raises:
        TypeError: an option is unknown.
        UsageError: the value of an option is of another type.
    """
    known = list(known)
    checked = {}
    for option, value in options.items():
        if option not in known:
            raise TypeError(f"submit: there is no option {option!r}; there are: {', '.join(known)}")
        if value is None:
            continue
        is_right, expected = _OPTIONS.get(option, (lambda _: True, ""))
        if not is_right(value):
            raise fault(option, expected, value)
        checked[option] = os.fsdecode(value) if isinstance(value, os.PathLike) else value
    return checked


def in_python(error: UsageError) -> UsageError:
    """Return a command-line error as one for Python, whose text names arguments, not options.

    For example, ``--time-limit`` becomes the name of the argument of `Client.submit`. A
    `SubmitError` is returned unchanged.
    """

    def rename(option: re.Match[str]) -> str:
        return _PYTHON_NAMES.get(option[0], option[0][2:].replace("-", "_"))

    text = _OPTION.sub(rename, str(error))
    if isinstance(error, SubmitError):
        return error
    return UsageError(text)
