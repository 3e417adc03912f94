"""Random priorities for jobs of any workload. Logs and models do not have usable ones."""

import dataclasses
import re
from fractions import Fraction
from random import Random

from pliant.core.model.jobs import MAX_PRIORITY, MIN_PRIORITY
from pliant.simulator.inputs.errors import SettingsError
from pliant.simulator.inputs.models.random_parts import choose_parts
from pliant.simulator.inputs.workload import Workload

_SHARE = re.compile(r"(\d+(?:\.\d+)?):([+-]?\d{1,18})", re.ASCII)
#: (percent of the jobs, their priority).
Shares = tuple[tuple[float, int], ...]


def parse_priorities(text: str) -> Shares:
    """Read ``PCT:N,...``, such as ``10:5,20:-1``.

    Raises:
        SettingsError: the text is not valid, or a value is out of bounds.
    """
    shares: list[tuple[float, int]] = []
    total = Fraction(0)  # floats of 0.2, 83.9 and 15.9 add up to more than 100
    for part in text.split(","):
        match = _SHARE.fullmatch(part.strip())
        if match is None:
            raise SettingsError(
                f"priorities {text!r}: {part.strip()!r} is not of the form PERCENT:PRIORITY; write "
                "PERCENT:PRIORITY,..., as in 10:5,20:-1"
            )
        priority = int(match[2])
        if not MIN_PRIORITY <= priority <= MAX_PRIORITY:
            raise SettingsError(f"priority {priority}: expected {MIN_PRIORITY} to {MAX_PRIORITY}")
        shares.append((float(match[1]), priority))
        total += Fraction(match[1])
    if total > 100:
        raise SettingsError(
            f"priorities {text!r}: the shares are {float(total):g} percent together, more than 100"
        )
    return tuple(shares)


def give_priorities(workload: Workload, shares: Shares, rng: Random) -> Workload:
    """Give priorities to random shares of the jobs. The other jobs keep theirs."""
    chosen = choose_parts(len(workload.jobs), shares, rng)
    return workload.with_jobs(
        dataclasses.replace(job, priority=chosen[place]) if place in chosen else job
        for place, job in enumerate(workload.jobs)
    )
