"""Read numbers on a command line: digits only, unlike `int`, which takes blanks and ``1_0``."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable

_SIGNED = r"[+-]?[0-9]{1,18}"
_DIGITS = r"[0-9]{1,18}"
_TASK = r"[0-9]{1,18}(_[0-9]{1,9})?"
_TASKS = r"[0-9]{1,18}_\[[0-9,:-]+\]"
_DECIMAL = r"[0-9]+(\.[0-9]*)?|\.[0-9]+"
#: The longest wait, which the kernel can sleep in one call.
_MAX_WAIT_S = 86400.0


def bounded_int(least: int, most: int) -> Callable[[str], int]:
    """Return an argparse type for whole numbers from ``least`` to ``most``."""

    def read(text: str) -> int:
        number = int(text) if re.fullmatch(_DIGITS, text) else -1
        if not least <= number <= most:
            raise ArgumentTypeError(f"{text!r}: write a number from {least} to {most}")
        return number

    return read


def job_number(text: str) -> int:
    """Read the number of a job, for argparse."""
    if not re.fullmatch(_DIGITS, text):
        raise ArgumentTypeError(f"{text!r} is not the number of a job; write one as in 12")
    return int(text)


def job_name(text: str) -> int | str:
    """Read a job, for argparse: its number, or one task of an array such as ``17_3``."""
    if not re.fullmatch(_TASK, text):
        raise ArgumentTypeError(
            f"{text!r} is not the number of a job; write one as in 12, or a task as in 17_3"
        )
    return int(text) if text.isdigit() else text


def job_names(text: str) -> int | str:
    """Read a job or tasks of an array, for argparse: ``17``, ``17_3`` or ``17_[5-10]``."""
    if not (re.fullmatch(_TASK, text) or re.fullmatch(_TASKS, text)):
        raise ArgumentTypeError(
            f"{text!r} is not the number of a job; write one as in 12, or tasks as in 17_3 or "
            "17_[5-10]"
        )
    return int(text) if text.isdigit() else text


def array_tasks(text: str) -> str:
    """Check the tasks of an array, for argparse, and return the text."""
    from pliant.core.arrays.task_numbers import parse_array

    try:
        parse_array(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    return text


def priority_number(text: str) -> int:
    """Convert an argument to a priority; a type for argparse."""
    from pliant.core.model.jobs import MAX_PRIORITY, MIN_PRIORITY

    number = int(text) if re.fullmatch(_SIGNED, text) else MAX_PRIORITY + 1
    if not MIN_PRIORITY <= number <= MAX_PRIORITY:
        raise ArgumentTypeError(
            f"{text!r}: write a whole number from {MIN_PRIORITY} to {MAX_PRIORITY}"
        )
    return number


def seconds(text: str) -> float:
    """Read how many seconds to wait, for argparse."""
    number = float(text) if re.fullmatch(_DECIMAL, text) else 0.0
    if not 0 < number <= _MAX_WAIT_S:
        raise ArgumentTypeError(f"{text!r}: write a number of seconds above 0, a day at most")
    return number


def tolerance(text: str) -> float:
    """Read a relative difference, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 0 <= number < float("inf"):
        raise ArgumentTypeError(f"{text!r}: write a number from 0 on, as in 1e-6")
    return number
