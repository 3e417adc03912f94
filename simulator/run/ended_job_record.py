"""The record of a simulated job that has ended."""

from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.simulator.inputs.workload import SimJob
from pliant.simulator.run.job_run import Run
from pliant.simulator.run.result import JobRecord


def make_record(job: SimJob, state: Job, run: Run | None, now: float) -> JobRecord:
    """Return the record of a job that has just ended.

    Args:
        job: the job in the workload.
        state: the job in the core.
        run: its last run; None if it never started.
        now: the simulated time, in seconds.
    """
    end = now if run is None else run.end
    profit = 0.0
    if job.contract is not None and run is not None:
        done = state.state is JobState.COMPLETED
        profit = job.contract.value(job.submit, end) if done else -job.contract.penalty
    return JobRecord(
        job.id,
        job.submit,
        None if run is None else run.first_start,
        end,
        0 if run is None else run.first_size,
        _job_class(job),
        state.state,
        0 if run is None else run.resizes,
        0.0 if run is None else run.work_done,
        0.0 if run is None else run.area,
        profit,
        "" if state.state is JobState.COMPLETED else state.why,
        0 if run is None else len(run.ranks),
        0 if run is None else run.suspensions + (run.ended and run.saving),
        0.0 if run is None else run.suspended_s,
        job.priority,
    )


def is_late(job: SimJob, record: JobRecord) -> bool:
    """Return whether a job ended after its deadline; differences by rounding do not count."""
    if job.contract is None:
        return False
    return record.end > job.contract.deadline(job.submit) * (1 + 1e-12) + 1e-6


def _job_class(job: SimJob) -> str:
    if job.phases:
        return "evolving"
    if job.sizes.fixed:
        return "rigid"
    return "malleable" if job.malleable else "moldable"
