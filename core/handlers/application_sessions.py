"""Sessions of applications: coordinators connect, disconnect, and report measured speeds.

Measured speeds are not kept over a restart. A connected application sends them again with its next
report.
"""

from collections.abc import Mapping

from pliant.core.commands import SendWithdraw
from pliant.core.events import (
    ApplicationLeft,
    ApplicationRegistered,
    ResizeDecided,
    SpeedMeasured,
)
from pliant.core.model.jobs import Job, RegisteredProgram
from pliant.core.model.lifecycle import JobState
from pliant.core.model.resize import BEFORE_GO, Releasing, Withdrawing
from pliant.core.state import relocations_in_progress
from pliant.core.state.core_state import CoreState
from pliant.core.support.plural import plural
from pliant.core.transitions import (
    job_end,
    leaving_ranks,
    resize_after_agreement,
    resize_open_close,
    time_limits,
)
from pliant.core.values.processors import from_indices

#: A measurement that differs by a smaller fraction from the known one is ignored.
TOLERANCE = 0.05

_LIVE = (JobState.STARTING, JobState.RUNNING, JobState.ADAPTING)


def on_application_registered(state: CoreState, event: ApplicationRegistered) -> None:
    """Handle a coordinator that has connected: register the program or continue its resize."""
    job = state.jobs.get(event.job)
    if job is None or job.run != event.run or job.state not in _LIVE:
        return
    if _is_former_coordinator(job, event):
        return
    again = job.registration is not None
    if job.registration is not None:
        job.registration.connected = True
    if job.state is JobState.STARTING:
        job.starting.clear()
        state.step(job, JobState.RUNNING, f"runs on {plural(job.size, 'processor')}")
        relocations_in_progress.note_arrival(state, job)
    _settle_open_resize(state, job, event, again)
    if job.state not in _LIVE or not _same_allocation(state, job, event):
        return
    if job.registration is None:
        _register_program(state, job, event)
    state.touch(job)
    state.plan_due = True


def _is_former_coordinator(job: Job, event: ApplicationRegistered) -> bool:
    """Return whether a coordinator belongs to a rank that has left the job and exits soon."""
    resize = job.resize
    if resize is not None and isinstance(resize.stage, Releasing):
        return (event.epoch, event.processors) == (job.epoch - 1, resize.before)
    # A leaving rank for which the job has stopped waiting.
    return event.epoch < job.epoch and bool(
        from_indices(event.processors[:1]) & leaving_ranks.processors_with_leftovers(job)
    )


def _settle_open_resize(
    state: CoreState, job: Job, event: ApplicationRegistered, again: bool
) -> None:
    """Continue or close a job's open resize when its coordinator (rank 0) connects.

    The coordinator reports in ``event`` whether the application has committed the resize. ``again``
    says whether the job had a connected coordinator before.
    """
    resize = job.resize
    if resize is None:
        return
    if isinstance(resize.stage, BEFORE_GO):
        if again:
            resize_open_close.withdraw(
                state, job, "the connection to the application was interrupted"
            )
    elif isinstance(resize.stage, Releasing):
        return
    elif event.epoch == job.epoch + 1:
        decision = ResizeDecided(
            job.id, job.run, resize.id, True, event.epoch, event.processors, "commit"
        )
        resize_after_agreement.on_resize_decided(state, decision)
    elif event.epoch == job.epoch and event.pending != resize.id:
        resize_after_agreement.roll_back(state, job, "go", "the application does not hold it")
    elif isinstance(resize.stage, Withdrawing):
        # Repeat the message, because it may have been lost while the coordinator was disconnected.
        state.emit(SendWithdraw(job.id, job.run, resize.id, resize.stage.reason))


def _same_allocation(state: CoreState, job: Job, event: ApplicationRegistered) -> bool:
    if (event.epoch, event.processors) == (job.epoch, job.ranks):
        return True
    job_end.end(
        state,
        job,
        JobState.FAILED,
        f"the application says epoch {event.epoch} on processors {list(event.processors)}, "
        f"but it has epoch {job.epoch} on {list(job.ranks)}",
    )
    return False


def _register_program(state: CoreState, job: Job, event: ApplicationRegistered) -> None:
    """Register the program of a job: keep only sizes that both its user and its program allow.

    If there are none, the job ends.
    """
    if event.sizes is not None:
        both = job.spec.sizes.intersect(event.sizes)
        if both is None:
            job_end.end(
                state,
                job,
                JobState.FAILED,
                f"no size suits both: submitted with {job.spec.sizes}, "
                f"the program allows {event.sizes}",
            )
            return
        job.sizes = both
    job.registration = RegisteredProgram(event.evolving_only)
    state.note("application.registered", f"sizes {job.sizes}", job, sizes=str(job.sizes))


def on_application_left(state: CoreState, event: ApplicationLeft) -> None:
    """Record that the coordinator disconnected, and withdraw a resize that is not yet ordered (GO).

    The job continues, but gets no offers.
    """
    job = state.jobs.get(event.job)
    if job is None or job.run != event.run or not job.connected:
        return
    job.disconnect()
    state.touch(job)
    resize = job.resize
    if resize is not None and isinstance(resize.stage, BEFORE_GO):
        resize_open_close.withdraw(state, job, "the application's session closed")
    state.plan_due = True


def on_speed_measured(state: CoreState, event: SpeedMeasured) -> None:
    """Store new measurements of a job's speed, and plan again if they differ from the old ones."""
    job = state.jobs.get(event.job)
    if job is None or job.run != event.run or job.final or not differs(job.measured, event.seconds):
        return
    before, job.measured = job.speedup, dict(event.seconds)
    time_limits.speedup_changed(state, job, before)
    state.rows.stale[job.id] = None
    state.plan_due |= job.malleable


def differs(known: Mapping[int, float], said: Mapping[int, float]) -> bool:
    """Return whether new measurements (seconds by size) differ from the known ones.

    They differ if they have other sizes, or if the time of a size has changed by more than the
    fraction `TOLERANCE`.
    """
    if known.keys() != said.keys():
        return True
    return any(abs(said[size] - known[size]) > TOLERANCE * known[size] for size in known)
