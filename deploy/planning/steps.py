"""Steps of a plan: what is done on a host, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Payload(StrEnum):
    """The kind of data that a step sends to the host in addition to its arguments."""

    NONE = ""
    #: The wheels of the release.
    WHEELS = "wheels"
    #: A join token that the server's host has made for this host.
    TOKEN = "token"


class Phase(StrEnum):
    """When a step is carried out: on all hosts side by side, or on the server's host first."""

    #: At any time, on all hosts side by side.
    PREPARE = "prepare"
    #: On the server's host before all others.
    START = "start"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a host's plan: an operation of `on_host.agent` with its arguments."""

    #: What administrators read in plans, progress and errors.
    text: str
    #: An operation of `on_host.agent`.
    operation: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    payload: Payload = Payload.NONE
    phase: Phase = Phase.PREPARE
    #: Whether it is done on the server's host instead.
    on_server: bool = False
    #: Whether a daemon restarts that other hosts must not restart at the same time.
    is_restart: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps of a host, in order. Without steps, nothing changes."""

    steps: tuple[Step, ...]
    #: What the administrator should know, such as settings that were changed by hand.
    notes: tuple[str, ...] = ()

    def of(self, phase: Phase) -> tuple[Step, ...]:
        """Return the steps of the plan that are carried out in ``phase`` (PREPARE or START)."""
        return tuple(step for step in self.steps if step.phase is phase)

    @property
    def is_rolling(self) -> bool:
        """Return whether hosts must carry out this plan in turns, because it restarts daemons."""
        return any(step.is_restart for step in self.steps)
