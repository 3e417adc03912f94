"""Users and accounts for jobs of any workload. Models have no users."""

import dataclasses
import re
from fractions import Fraction
from random import Random

from pliant.core.values.shares import is_account_name
from pliant.simulator.inputs.errors import SettingsError
from pliant.simulator.inputs.models.random_parts import choose_parts
from pliant.simulator.inputs.workload import Workload

_PART = re.compile(r"(\d+(?:\.\d+)?):([^@:,\s]+)(?:@([^@:,\s]+))?", re.ASCII)
#: (percent of the jobs, user, account).
UserParts = tuple[tuple[float, str, str], ...]


def parse_users(text: str) -> UserParts:
    """Read ``PCT:USER[@ACCOUNT],...``, such as ``60:alice,40:bob@physics``.

    Raises:
        SettingsError: the text is not valid.
    """
    parts: list[tuple[float, str, str]] = []
    total = Fraction(0)
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None or not is_account_name(match[3] or "none"):
            raise SettingsError(
                f"users {text!r}: {part.strip()!r} is not of the form PERCENT:USER[@ACCOUNT]; "
                "write PERCENT:USER,..., as in 60:alice,40:bob"
            )
        parts.append((float(match[1]), match[2], match[3] or ""))
        total += Fraction(match[1])
    if total > 100:
        raise SettingsError(
            f"users {text!r}: the parts are {float(total):g} percent together, more than 100"
        )
    return tuple(parts)


def give_users(workload: Workload, parts: UserParts, rng: Random) -> Workload:
    """Give random parts of the jobs to users. The other jobs keep theirs."""
    named = ((percent, (user, account)) for percent, user, account in parts)
    chosen = choose_parts(len(workload.jobs), named, rng)
    return workload.with_jobs(
        dataclasses.replace(job, user=chosen[place][0], account=chosen[place][1])
        if place in chosen
        else job
        for place, job in enumerate(workload.jobs)
    )
