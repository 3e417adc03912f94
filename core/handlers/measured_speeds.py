"""How fast applications say they are, at the sizes that they have had.

Not kept over a restart: an application that is still there says it again with its next report.
"""

from collections.abc import Mapping

from pliant.core.events import SpeedMeasured
from pliant.core.state.state import State
from pliant.core.transitions import time_limits

#: A measurement that differs by less from what is known is no news.
TOLERANCE = 0.05


def on_speed_measured(state: State, event: SpeedMeasured) -> None:
    """Take over what an application has measured, if it is news; then there is a new plan."""
    job = state.jobs.get(event.job)
    if job is None or job.run != event.run or job.final or not differs(job.measured, event.seconds):
        return
    before, job.measured = job.speedup, dict(event.seconds)
    time_limits.speedup_changed(state, job, before)
    state.rows.stale[job.id] = None
    state.plan_due |= job.malleable


def differs(known: Mapping[int, float], said: Mapping[int, float]) -> bool:
    """Whether measurements (seconds by size) say something else than those that are known."""
    if known.keys() != said.keys():
        return True
    return any(abs(said[size] - known[size]) > TOLERANCE * known[size] for size in known)
