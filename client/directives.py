"""``#JOB`` directives: options of ``jobsub`` at the head of a script."""

from __future__ import annotations

import os
import shlex
from typing import NamedTuple

from pliant.client.errors import SubmitError

MARK = "#JOB"
#: Bytes at the head of a script that are searched for directives.
_HEAD_BYTES = 1 << 16


class Directive(NamedTuple):
    """One line of options."""

    line: int
    text: str
    words: list[str]


def read_directives(path: str) -> list[Directive]:
    """Return the directives of a script; empty if it cannot be read."""
    try:
        with open(path, "rb") as script:
            head = script.read(_HEAD_BYTES)
    except OSError:
        return []  # the checks of the program report that
    if not (head.startswith(b"#") or path.endswith(".sh")):
        return []
    return parse_directives(os.fsdecode(head), path)


def parse_directives(text: str, path: str = "script") -> list[Directive]:
    """Return all directives before the first line that is neither comment nor blank.

    Raises:
        SubmitError: a directive has an open quote; names the line.
    """
    found: list[Directive] = []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            break
        if stripped.split(maxsplit=1)[:1] != [MARK]:
            continue
        try:
            words = shlex.split(stripped[len(MARK) :], comments=True)
        except ValueError as error:
            remedy = "close what is open, or put a backslash before a quote that is meant as such"
            fault = f"{stripped!r}: {str(error).lower()}"
            raise SubmitError(f"{path}:{number}", fault, remedy) from None
        found.append(Directive(number, stripped, words))
    return found
