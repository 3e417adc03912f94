"""Prevent a new run of a job while old processes may be alive on a node without contact.

This holds for jobs with ``stop-after`` (see ``values/lost_contact_policy.py``). Such a job stays
COMPLETING, or ADAPTING if it is saved, until the node is back and has ended the processes, or until
the time has passed after which the node has ended them.
"""

from math import inf

from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import ACTIVE_STATES, JobState
from pliant.core.model.nodes import Node, NodeState
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.state.core_state import CoreState
from pliant.core.transitions import job_end, suspension_steps
from pliant.core.values import lost_contact_policy
from pliant.core.values.lost_contact_policy import Isolation
from pliant.core.values.processors import NONE


def node_lost(state: CoreState, node: Node) -> None:
    """Record which jobs may have live processes on a lost node, and when these end at the latest.

    Only jobs whose processes end without contact (``stop-after``) are recorded.
    """
    for job in state.active.values():
        if job.isolation_grace_s and (job.occupied & node.processors or node.name in job.isolated):
            wait_s = lost_contact_policy.wait_s(job.isolation_grace_s, state.limits.lease_s)
            _wait(state, job, node, Isolation(state.now + wait_s, wait_s))
            policy = lost_contact_policy.isolation_policy(job.spec.stop_after_s)
            text = f"its processes on node {node.name} end by themselves ({policy})"
            state.note("job.cut_off", f"{text}: surely gone in {wait_s:.0f} s", job)


def _wait(state: CoreState, job: Job, node: Node, entry: Isolation) -> None:
    job.isolated[node.name] = entry
    state.isolated[job.id] = job
    state.touch(job)
    state.timer_at(TimerKind.CUT_OFF, job, entry.until)


def node_reported(state: CoreState, node: Node) -> None:
    """Record that a lost node has returned and will report when its old processes end."""
    for job in state.isolated.values():
        entry = job.isolated.get(node.name)
        if entry is not None:
            job.isolated[node.name] = entry._replace(until=inf, back=True)
            state.touch(job)


def recover(state: CoreState) -> None:
    """After a restart of the server, wait again for processes on nodes without contact.

    Waiting times start again, because the clock may have changed. Nodes that were not lost have a
    whole lease to report.
    """
    for job in state.active.values():
        if job.isolation_grace_s:
            job.isolation_grace_s = max(
                job.isolation_grace_s, state.limits.isolation_grace_s(job.spec.stop_after_s)
            )
        for name, entry in list(job.isolated.items()):
            state.isolated[job.id] = job
            node = state.nodes.get(name)
            if node is not None and node.state is NodeState.LOST:
                _wait(state, job, node, entry._replace(until=state.now + entry.wait_s))


def on_isolation_end(_state: CoreState, _timer: Timer) -> None:
    """Do nothing, because ``release_fenced`` runs after each batch of events."""


def release_fenced(state: CoreState) -> None:
    """Stop waiting for processes on lost nodes once they have certainly ended.

    An ending or suspended job that waited only for these processes is then closed or suspended.
    """
    for job in list(state.isolated.values()):
        if job.state in ACTIVE_STATES:
            for name in [n for n, e in job.isolated.items() if _gone(state, state.nodes.get(n), e)]:
                del job.isolated[name]
                state.touch(job)
        if job.state not in ACTIVE_STATES or not job.isolated:
            job.isolated.clear()
            del state.isolated[job.id]
            _continue(state, job)


def _gone(state: CoreState, node: Node | None, entry: Isolation) -> bool:
    """Return whether all processes of a job on a node have certainly ended.

    ``node`` is None if the node was removed.
    """
    if node is None or entry.until <= state.now:
        return True
    return entry.back and not state.ledger.orphaned & node.processors


def _continue(state: CoreState, job: Job) -> None:
    if job.state is JobState.COMPLETING:
        job_end.close_if_gone(state, job)
    elif suspension_steps.is_leaving(job):
        suspension_steps.processes_gone(state, job, NONE)
