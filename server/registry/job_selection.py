"""Conditions on jobs in a request (user, state, name, end), and an index to find these jobs.

A list of the jobs of one user must not take longer because others have many jobs. So the status
cache keeps its jobs by user and by state, and examines only the smallest of these sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from typing import Any

from pliant.core.model.lifecycle import FINAL_STATES
from pliant.core.values.ids import JobId

_FINAL = frozenset(state.value for state in FINAL_STATES)


@dataclass(frozen=True, slots=True)
class JobSelection:
    """The conditions of a request on jobs. An empty set means that there is no such condition."""

    users: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    #: Patterns of names, with the wildcards of the shell.
    names: frozenset[str] = frozenset()
    #: Jobs that ended at this time or later are wanted, too, seconds since the epoch. None for only
    #: those that have not ended.
    ended_since: float | None = None

    @property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """Return the compiled patterns of job names."""
        return tuple(re.compile(translate(name)) for name in sorted(self.names))

    @property
    def wants_all(self) -> bool:
        """Return whether jobs of all users, states and names match this selection."""
        return not (self.users or self.states or self.names)

    @property
    def final_states(self) -> frozenset[str]:
        """Return the final states in this selection; all final states if it names no state."""
        return _FINAL & self.states if self.states else _FINAL

    def selects(self, info: Mapping[str, Any], patterns: Iterable[re.Pattern[str]]) -> bool:
        """Return whether a job matches this selection.

        Args:
            info: the values of the job, as users see them.
            patterns: the value of the property `patterns`. The caller passes it, because compiling
                the patterns for each job would take long.
        """
        if self.users and info["user"] not in self.users:
            return False
        if self.states and info["state"] not in self.states:
            return False
        end = info["end"]
        if info["state"] in _FINAL and (
            self.ended_since is None or (end or 0.0) < self.ended_since
        ):
            return False
        return not self.names or any(pattern.match(info["name"]) for pattern in patterns)


class JobIndex:
    """Finds the numbers of jobs by user and by state. The caller holds a lock."""

    def __init__(self) -> None:
        self._places: dict[JobId, tuple[str, str]] = {}
        self._users: dict[str, set[JobId]] = {}
        self._states: dict[str, set[JobId]] = {}

    def update(self, job: JobId, user: str, state: str) -> None:
        """Record the user and the present state of a job."""
        before = self._places.get(job)
        if before == (user, state):
            return
        if before is None:
            self._users.setdefault(user, set()).add(job)
        else:
            _discard(self._states, before[1], job)
        self._states.setdefault(state, set()).add(job)
        self._places[job] = (user, state)

    def forget(self, job: JobId) -> None:
        """Remove a job from the index, if the index contains it."""
        if (place := self._places.pop(job, None)) is not None:
            _discard(self._users, place[0], job)
            _discard(self._states, place[1], job)

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each state."""
        return {state: len(jobs) for state, jobs in self._states.items()}

    def candidates(self, selection: JobSelection, known: Mapping[JobId, object]) -> list[JobId]:
        """Return the numbers of all jobs that may match a selection, in ascending order.

        Only the users or only the states of the selection are compared. The caller must check all
        conditions.

        Args:
            selection: which jobs are wanted.
            known: the jobs to choose from; other numbers in the index are left out.
        """
        sets: list[set[JobId]] = []
        if selection.users:
            sets.append(_union(self._users, selection.users))
        if selection.states:
            sets.append(_union(self._states, selection.states))
        smallest = min(sets, key=len, default=None)
        if smallest is None or len(smallest) > len(known):
            return sorted(known)
        return sorted(job for job in smallest if job in known)


def _discard(sets: dict[str, set[JobId]], key: str, job: JobId) -> None:
    sets[key].discard(job)
    if not sets[key]:
        del sets[key]


def _union(sets: Mapping[str, set[JobId]], keys: Iterable[str]) -> set[JobId]:
    found = [sets[key] for key in keys if key in sets]
    return found[0] if len(found) == 1 else set().union(*found)
