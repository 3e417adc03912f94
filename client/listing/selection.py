"""Options that select jobs: by user, name, state and time. The server does the selecting."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence

from pliant.client.client_errors import UsageError
from pliant.client.reconnecting import FINAL_STATES
from pliant.client.terminal.output import Parser

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import Any

#: The states, and the letters by which users of Slurm know some of them.
STATES = (
    *("HELD", "PENDING", "STARTING", "RUNNING", "ADAPTING", "SUSPENDED", "COMPLETING"),
    *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "REJECTED"),
)
_SHORT = {
    **{"PD": "PENDING", "R": "RUNNING", "S": "SUSPENDED", "CG": "COMPLETING", "CD": "COMPLETED"},
    **{"F": "FAILED", "CA": "CANCELLED", "TO": "TIMEOUT", "NF": "NODE_FAIL", "CF": "STARTING"},
}


def add_selection_options(parser: Parser) -> None:
    """Add ``--user``, ``--me``, ``--state`` and ``--name``."""
    group = parser.add_argument_group("which jobs")
    group.add_argument(
        "-u",
        "--user",
        action="append",
        type=_words,
        metavar="NAME",
        help="jobs of this user; several with commas",
    )
    group.add_argument("--me", action="store_true", help="your own jobs")
    group.add_argument(
        "-t",
        "--state",
        action="append",
        type=_states,
        metavar="STATE",
        help="jobs in this state, such as pending or failed; several with commas",
    )
    group.add_argument(
        "-n",
        "--name",
        action="append",
        type=_words,
        metavar="PATTERN",
        help="jobs of this name; `*` stands for any letters, `?` for one; several with commas",
    )


def add_since_option(parser: Parser) -> None:
    """Add the option ``--since``."""
    parser.add_argument(
        "--since",
        type=moment_before,
        metavar="TIME",
        help="jobs that ended since then, too: 90s, 12h, 7d, 2026-12-24T16:30, or 2026-12-24 for "
        "the beginning of that day",
    )


def selection_fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a request that select jobs; empty if no option does.

    Raises:
        UsageError: if ``--me`` is used by a user without a name.
    """
    users, states, names = (_all(getattr(options, key)) for key in ("user", "state", "name"))
    if options.me:
        users = [*users, own_name()]
    fields: dict[str, Any] = {"users": users, "states": states, "names": names}
    if getattr(options, "since", None) is not None:
        fields["since"] = options.since
    return {key: value for key, value in fields.items() if value}


def names_ended_jobs(options: argparse.Namespace) -> bool:
    """Return whether ``--state`` names a state that only ended jobs have."""
    return any(state in FINAL_STATES for state in _all(options.state))


def own_name() -> str:
    """Return the name of the user who runs the command.

    Raises:
        UsageError: if the user database does not know it.
    """
    import os
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise UsageError(f"--me: user {os.getuid()} has no name; use --user") from None


def moment_before(text: str) -> float:
    """Convert a time span before now, such as ``12h``, or a date to seconds since the epoch.

    This is a type for argparse. A span that is longer than the time since the epoch stands for the
    epoch.
    """
    from pliant.client.terminal.durations import parse_span

    now = time.time()
    try:
        return max(0.0, now - parse_span(text))
    except ValueError:
        pass
    for form in ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"):
        try:
            return time.mktime(time.strptime(text, form))
        except (ValueError, OverflowError):
            continue
    raise argparse.ArgumentTypeError(
        f"{text!r} is no time; write 90s, 12h, 7d, 2026-12-24 or 2026-12-24T16:30"
    )


def _words(text: str) -> list[str]:
    words = [word for word in text.split(",") if word]
    if not words:
        raise argparse.ArgumentTypeError(f"{text!r}: write at least one name")
    return words


def _states(text: str) -> list[str]:
    found = []
    for word in _words(text):
        upper = word.upper().replace("-", "_")
        state = _SHORT.get(upper, upper)
        if state not in STATES:
            known = ", ".join(STATES).lower()
            raise argparse.ArgumentTypeError(f"{word!r} is no state; the states are {known}")
        found.append(state)
    return found


def _all(lists: Sequence[Sequence[str]] | None) -> list[str]:
    return [word for words in lists or () for word in words]


def unknown_jobs(answer: Mapping[str, Any], names: Sequence[int | str]) -> list[int | str]:
    """Return the named jobs that are missing in the answer to a request ``jobs``.

    Args:
        answer: the answer of the server.
        names: the jobs as the user named them.
    """
    if "missing" in answer:
        return list(answer["missing"])
    known = {job["id"] for job in answer.get("jobs", ())}
    known.update(row[answer["fields"].index("id")] for row in answer.get("rows", ()))
    return [name for name in names if name not in known]
