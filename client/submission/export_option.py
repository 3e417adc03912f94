"""The environment of a job: what ``--export`` takes from the submitter's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from pliant.client.client_errors import SubmitError

#: Variables of every job, whatever is exported.
BASICS = ("HOME", "LOGNAME", "SHELL", "USER")
#: PATH of a job that does not get its submitter's.
PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
#: A comma separates entries only if a name follows, so that a value may contain commas.
_COMMA = re.compile(r",(?=[A-Za-z_][A-Za-z0-9_]*(?:[=,]|$))", re.ASCII)


def select_environment(
    choices: Iterable[str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment variables that the values of ``--export`` select.

    ``ALL`` (the default) is the whole environment, ``NONE`` none of it, ``NAME`` only the named
    ones; ``NAME=VALUE`` sets one more.

    Raises:
        SubmitError: an entry is malformed, or names a variable that is not set.
    """
    entries = [entry for choice in choices for entry in _COMMA.split(choice) if entry]
    names = [entry for entry in entries if "=" not in entry and entry not in {"ALL", "NONE"}]
    if "ALL" in entries or not (names or "NONE" in entries):
        result = dict(environ)
    else:
        result = {name: environ[name] for name in BASICS if name in environ}
        result["PATH"] = PLAIN_PATH
        result |= {name: _value(name, environ) for name in names}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if equals:
            result[_checked(name)] = value
    return result


def _value(name: str, environ: Mapping[str, str]) -> str:
    if _checked(name) not in environ:
        raise SubmitError(
            "export", f"the variable {name} is not set", f"set it, or write --export {name}=VALUE"
        )
    return environ[name]


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise SubmitError(
            "export", f"{name!r} is not the name of a variable", "write ALL, NONE, NAME, NAME=VALUE"
        )
    return name
