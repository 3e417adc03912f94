"""Random priorities for jobs of any workload. Logs and models do not have usable ones."""

import dataclasses
import re
from random import Random

from pliant.core.model.jobs import MAX_PRIORITY, MIN_PRIORITY
from pliant.simulator.inputs.models.random_job_fractions import choose_parts, parse_parts
from pliant.simulator.inputs.simulation_errors import SettingsError
from pliant.simulator.inputs.workload import Workload

_PRIORITY = re.compile(r"[+-]?\d{1,18}", re.ASCII)
#: (percent of the jobs, their priority).
Shares = tuple[tuple[float, int], ...]


def parse_priorities(text: str) -> Shares:
    """Read ``PCT:N,...``, such as ``10:5,20:-1``: 10 % of the jobs get priority 5, 20 % get -1.

    Raises:
        SettingsError: the text is not valid, or a value is out of bounds.
    """
    return tuple(
        parse_parts(text, _priority, what="priorities", form="PRIORITY", example="10:5,20:-1")
    )


def _priority(text: str) -> int | None:
    if not _PRIORITY.fullmatch(text):
        return None
    priority = int(text)
    if not MIN_PRIORITY <= priority <= MAX_PRIORITY:
        raise SettingsError(f"priority {priority}: expected {MIN_PRIORITY} to {MAX_PRIORITY}")
    return priority


def give_priorities(workload: Workload, shares: Shares, rng: Random) -> Workload:
    """Return the workload with priorities for randomly chosen jobs; other jobs keep theirs."""
    chosen = choose_parts(len(workload.jobs), shares, rng)
    return workload.with_jobs(
        dataclasses.replace(job, priority=chosen[place]) if place in chosen else job
        for place, job in enumerate(workload.jobs)
    )
