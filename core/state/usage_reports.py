"""Reports of the usage that the server counts."""

import math

from pliant.core.model.fair_share_factor import FairShares, Standing
from pliant.core.model.usage import AllocationPhase
from pliant.core.state.core_state import CoreState


def standings(state: CoreState, now: float) -> tuple[float, list[Standing]]:
    """Return the half-life of usage in seconds, and share and usage of each account and user.

    Users who have jobs but have used nothing are included.
    """
    accounting = state.accounting
    if accounting is None:
        return math.inf, []
    jobs = [*state.waiting.values(), *state.active.values()]
    others = {(job.spec.account, job.spec.user) for job in jobs}
    found = FairShares(accounting.rows, accounting.shares, now)
    return accounting.shares.half_life_s, found.standings(others)


def open_phases(state: CoreState, now: float) -> list[AllocationPhase]:
    """Return, for each job with processors, the time since it got exactly these processors.

    These accounting records (phases) have not ended; ``now`` is entered as their end.
    """
    return [
        AllocationPhase(
            job.id,
            job.phase.run,
            job.spec.user,
            job.spec.uid,
            job.spec.account,
            job.phase.since,
            max(now, job.phase.since),
            job.size,
            tuple(state.node_names(job.phase.allocation)),
        )
        for job in state.active.values()
        if job.phase is not None
    ]
