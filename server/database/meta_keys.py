"""The keys of the table ``meta``, and the valid values of each.

Counters have limits far below what messages between daemons (64 bits) and SQLite (63 bits) can
hold. A greater number in a file or in the database is damage and is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping

from pliant.server.support.clock import CLOCK_KEY

GENERATION = "generation"
#: The last transaction.
COMMITS = "commits"
#: The last job number that may have been used, if it is not in the table ``job``.
LAST_JOB_ID = "last_number"
#: ``JOB RUN``, set if the database is an older copy: jobs up to JOB may have had runs that it does
#: not know, and RUN is the first number that none of them used.
RUNS_FROM = "runs_from"
#: The number of the next resize.
NEXT_RESIZE = "next_resize"
#: Limit of generations, job numbers and resize numbers.
MAX_ID = 1 << 39
#: The limit in files next to the database; lower, so that later numbers can be stored.
MAX_ID_IN_FILE = MAX_ID >> 1
#: Limit of transactions in one generation.
MAX_COMMITS = 1 << 60


def parse_bounded_int(text: str, most: int) -> int:
    """Return the number from 0 to ``most`` that a text of decimal digits holds.

    Raises:
        ValueError: if the text is anything else.
    """
    if not (text.isascii() and text.isdecimal() and int(text) <= most):
        raise ValueError(text)
    return int(text)


def find_invalid(meta: Mapping[str, object]) -> list[str]:
    """Return those keys of the table ``meta`` whose values cannot have been stored by a server."""
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
    """Return the two numbers in a text such as ``12 3000``.

    Raises:
        ValueError: if the text is anything else.
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
