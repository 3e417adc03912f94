"""Users and accounts for jobs of any workload. Most models make jobs without users."""

import dataclasses
import re
from random import Random

from pliant.core.values.fair_share_settings import is_account_name
from pliant.simulator.inputs.models.random_job_fractions import choose_parts, parse_parts
from pliant.simulator.inputs.workload import Workload

_USER = re.compile(r"([^@:,\s]+)(?:@([^@:,\s]+))?", re.ASCII)
#: (percent of the jobs, (user, account)). The account is empty if none is given.
UserParts = tuple[tuple[float, tuple[str, str]], ...]


def parse_users(text: str) -> UserParts:
    """Read ``PCT:USER[@ACCOUNT],...``, which says what percentage of the jobs each user gets.

    An example is ``60:alice,40:bob@physics``.

    Raises:
        SettingsError: the text is not valid.
    """
    return tuple(
        parse_parts(text, _user, what="users", form="USER[@ACCOUNT]", example="60:alice,40:bob")
    )


def _user(text: str) -> tuple[str, str] | None:
    match = _USER.fullmatch(text)
    if match is None or not is_account_name(match[2] or "none"):
        return None
    return match[1], match[2] or ""


def give_users(workload: Workload, parts: UserParts, rng: Random) -> Workload:
    """Return the workload with randomly chosen jobs given to users; other jobs keep theirs."""
    chosen = choose_parts(len(workload.jobs), parts, rng)
    return workload.with_jobs(
        dataclasses.replace(job, user=chosen[place][0], account=chosen[place][1])
        if place in chosen
        else job
        for place, job in enumerate(workload.jobs)
    )
