"""Malleable jobs leave nodes that are being drained, by mandatory offers.

A malleable job that also has ranks on other nodes is asked to give up its ranks on the draining
node. If it refuses, ``NegotiationPolicy.escalation`` decides what follows. The job is asked again
as soon as it may get offers.
"""

from pliant.core.model.jobs import Job
from pliant.core.model.resize import BEFORE_GO
from pliant.core.state.core_state import CoreState
from pliant.core.transitions import resize_open_close
from pliant.core.values.processors import ProcessorMap, from_indices


def ask_to_leave_draining(state: CoreState) -> None:
    """Ask jobs to leave draining nodes, and withdraw growth on them."""
    drains = state.ledger.draining
    for job in list(state.active.values()):
        resize = job.resize
        if resize is not None and resize.added & drains and isinstance(resize.stage, BEFORE_GO):
            resize_open_close.withdraw(state, job, "a node that it would grow on is being drained")
        if job.allocation & drains and job.can_get_offers(state.now):
            _ask_to_leave(state, job, drains)


def _ask_to_leave(state: CoreState, job: Job, drains: ProcessorMap) -> None:
    stays = [processor for processor in job.ranks if not drains >> processor & 1]
    size = job.sizes.largest_at_most(len(stays))
    if size:
        names = ", ".join(state.node_names(job.allocation & drains))
        cause = f"to leave {names}, which is being drained"
        resize_open_close.open_negotiation(
            state, job, from_indices(stays[:size]), cause, mandatory=True
        )
