"""The part of a deployment command on one host: connect, probe, check, and carry out steps."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from pliant.client.ssh.session import HostError
from pliant.deploy.planning.checks import Problem
from pliant.deploy.planning.cluster import Cluster, Host
from pliant.deploy.planning.facts import HostFacts, parse_facts
from pliant.deploy.planning.plan import probe_arguments
from pliant.deploy.planning.steps import Plan, Step
from pliant.deploy.rollout.agent_session import AgentSession


@dataclass
class HostRun:
    """The state of one host during a command of ``pliant deploy``."""

    host: Host
    session: AgentSession
    #: Whether the command is about this host; the server's host may only help.
    is_selected: bool = True
    facts: HostFacts | None = None
    plan: Plan = field(default_factory=lambda: Plan(()))
    problems: list[Problem] = field(default_factory=list)
    #: Number of steps that were carried out.
    done: int = 0
    #: The host whose failure has kept this host from its restart; empty if none has.
    stopped_by: str = ""

    @property
    def name(self) -> str:
        """Return the name of the host."""
        return self.host.name

    @property
    def has_failed(self) -> bool:
        """Return whether the host has a problem, so that it gets no further steps."""
        return bool(self.problems)

    def fail(self, failure: HostError) -> None:
        """Add a failure to the problems of the host."""
        self.problems.append(Problem(failure.step, failure.cause, failure.remedy))

    def connect_and_probe(self, cluster: Cluster) -> None:
        """Connect to the host, and collect its facts; an error becomes a problem of the host."""
        try:
            self.session.connect()
            before = time.time()
            record = self.session.call("probe", probe_arguments(cluster, self.host), step="probe")
            after = time.time()
            self.facts = self._facts(record, before, after)
        except HostError as failure:
            self.fail(failure)

    def carry_out(self, step: Step, payload: bytes) -> dict[str, Any]:
        """Carry out a step on this host, count it, and return its result.

        Raises:
            HostError: the step failed.
        """
        result = self.session.call(step.operation, step.arguments, payload, step=step.text)
        self.done += 1
        return result

    def _facts(self, record: dict[str, Any], before: float, after: float) -> HostFacts:
        error = (after - before) / 2
        offset = float(record["time"]) - (before + after) / 2
        try:
            return parse_facts(record, clock_offset_s=offset, clock_error_s=error, not_shared={})
        except ValueError as problem:
            cause = f"the answer is not understood: {problem}"
            raise HostError(self.name, "probe", cause) from None
