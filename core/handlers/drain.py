"""Jobs leave nodes that are being drained, as far as they can: by mandatory offers.

A malleable job with ranks elsewhere is asked to give back those on such a node. What follows if it
refuses is ``NegotiationPolicy.escalation``; it is asked again when it may be asked at all.
"""

from pliant.core.model.jobs import Job
from pliant.core.model.resize import BEFORE_GO
from pliant.core.state.state import State
from pliant.core.transitions import resize_transaction
from pliant.core.values.processors import ProcessorMap, from_indices


def ask_to_leave_draining(state: State) -> None:
    """Ask all who can leave a node that drains, and let nobody grow there."""
    drains = state.ledger.draining
    for job in list(state.active.values()):
        resize = job.resize
        if resize is not None and resize.added & drains and resize.stage in BEFORE_GO:
            resize_transaction.withdraw(state, job, "a node that it would grow on is being drained")
        if job.allocation & drains and job.can_get_offers(state.now):
            _ask_to_leave(state, job, drains)


def _ask_to_leave(state: State, job: Job, drains: ProcessorMap) -> None:
    stays = [processor for processor in job.ranks if not drains >> processor & 1]
    size = job.sizes.largest_at_most(len(stays))
    if size:
        names = ", ".join(state.node_names(job.allocation & drains))
        cause = f"to leave {names}, which is being drained"
        resize_transaction.open_negotiation(
            state, job, from_indices(stays[:size]), cause, mandatory=True
        )
