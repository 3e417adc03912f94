"""The single values of the database: what each may be.

What is counted stays far below what the messages between daemons (64 bits) and SQLite (63) hold. A
number above that was never counted: it is damage, and must not get from a file into the database.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping

from pliant.server.support.clock import CLOCK_KEY

GENERATION = "generation"
#: The last transaction.
COMMITS = "commits"
#: The last number of a job that may have been given, where jobs of the database do not say so.
LAST_JOB_ID = "last_number"
#: Of an older copy: which jobs may have had more runs than it knows, and the first one that none
#: of them has had, ``JOB RUN``.
RUNS_FROM = "runs_from"
#: The number of the next resize.
NEXT_RESIZE = "next_resize"
#: Generations, jobs and resizes.
MAX_ID = 1 << 39
#: The same in a file beside the database: what follows it can be stored.
MAX_ID_IN_FILE = MAX_ID >> 1
#: Transactions of one generation.
MAX_COMMITS = 1 << 60


def parse_bounded_int(text: str, most: int) -> int:
    """Read a number as servers write it, from 0.

    Raises:
        ValueError: it is something else, or a greater one.
    """
    if not (text.isascii() and text.isdecimal() and int(text) <= most):
        raise ValueError(text)
    return int(text)


def unreadable(meta: Mapping[str, object]) -> list[str]:
    """Return the names of values that no server has stored."""
    return [key for key, value in meta.items() if not _is_readable(key, value)]


def _is_readable(key: str, value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        _READ.get(key, str)(value)
    except ValueError:
        return False
    return True


def _count(text: str) -> None:
    generation, number = text.split()
    parse_bounded_int(generation, MAX_ID)
    parse_bounded_int(number, MAX_COMMITS)


def parse_two_ids(text: str) -> tuple[int, int]:
    """Read two numbers as servers write them.

    Raises:
        ValueError: it is something else.
    """
    one, other = text.split()
    return parse_bounded_int(one, MAX_ID), parse_bounded_int(other, MAX_ID)


def _number(text: str) -> None:
    parse_bounded_int(text, MAX_ID)


def _port(text: str) -> None:
    parse_bounded_int(text, 0xFFFF)


def _clock(text: str) -> None:
    _, offset = text.split(" ")
    if not math.isfinite(float(offset)):
        raise ValueError(text)


_READ: Mapping[str, Callable[[str], object]] = {
    GENERATION: _number,
    COMMITS: _count,
    LAST_JOB_ID: _number,
    CLOCK_KEY: _clock,
    NEXT_RESIZE: _number,
    RUNS_FROM: parse_two_ids,
    "port": _port,
    "memory": json.loads,
    "key": bytes.fromhex,
}
