"""No other run of a job before its processes on a node that is cut off are surely gone.

For jobs that asked for it (``core.cut_off``). Such a job stays COMPLETING, or on its way out with
everything saved, until its node is back and has ended them, or until the time has passed after
which the node has ended them by itself.
"""

from math import inf

from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import ACTIVE_STATES, JobState
from pliant.core.model.nodes import Node, NodeState
from pliant.core.model.timers import Timer, TimerKind
from pliant.core.state.state import State
from pliant.core.transitions import job_end, suspend
from pliant.core.values import isolation
from pliant.core.values.isolation import Isolation
from pliant.core.values.processors import NONE


def node_lost(state: State, node: Node) -> None:
    """A node is given up: note whose processes may live on there, and how long."""
    for job in state.active.values():
        if job.isolation_grace_s and (job.occupied & node.processors or node.name in job.isolated):
            wait_s = isolation.wait_s(job.isolation_grace_s, state.limits.lease_s)
            _wait(state, job, node, Isolation(state.now + wait_s, wait_s))
            policy = isolation.isolation_policy(job.spec.stop_after_s)
            text = f"its processes on node {node.name} end by themselves ({policy})"
            state.note("job.cut_off", f"{text}: surely gone in {wait_s:.0f} s", job)


def _wait(state: State, job: Job, node: Node, entry: Isolation) -> None:
    job.isolated[node.name] = entry
    state.isolated[job.id] = job
    state.touch(job)
    state.timer_at(TimerKind.CUT_OFF, job, entry.until)


def node_reported(state: State, node: Node) -> None:
    """A node has told what lives there; what should not is being ended."""
    for job in state.isolated.values():
        entry = job.isolated.get(node.name)
        if entry is not None:
            job.isolated[node.name] = entry._replace(until=inf, back=True)
            state.touch(job)


def recover(state: State) -> None:
    """After a restart of the server: a time that had begun begins again, for clocks may jump.

    Nodes that were not lost have a whole lease to report, or are lost then.
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


def on_isolation_end(_state: State, _timer: Timer) -> None:
    """Do nothing: ``release_fenced`` runs after the events of every instant."""


def release_fenced(state: State) -> None:
    """Let those go on whose processes are gone everywhere."""
    for job in list(state.isolated.values()):
        if job.state in ACTIVE_STATES:
            for name in [n for n, e in job.isolated.items() if _gone(state, state.nodes.get(n), e)]:
                del job.isolated[name]
                state.touch(job)
        if job.state not in ACTIVE_STATES or not job.isolated:
            job.isolated.clear()
            del state.isolated[job.id]
            _continue(state, job)


def _gone(state: State, node: Node | None, entry: Isolation) -> bool:
    """Whether nothing of a job can be left on a node; None: its operator has removed it."""
    if node is None or entry.until <= state.now:
        return True
    return entry.back and not state.orphaned & node.processors


def _continue(state: State, job: Job) -> None:
    if job.state is JobState.COMPLETING:
        job_end.close_if_gone(state, job)
    elif suspend.is_leaving(job):
        suspend.processes_gone(state, job, NONE)
