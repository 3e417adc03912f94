"""Streit's shrinking factor: the same jobs are submitted in less time, which raises the load."""

import dataclasses

from pliant.simulator.inputs.workload import Workload, WorkloadError


def shrink(workload: Workload, factor: float) -> Workload:
    """Return the workload with all submit times multiplied by ``factor`` (Streit 3).

    The factor 0.5 doubles the load.

    Raises:
        WorkloadError: the factor is not positive, or the times become too long.
    """
    if not 0 < factor < float("inf"):
        raise WorkloadError(f"expected a positive shrinking factor, not {factor:g}")
    try:
        return workload.with_jobs(
            dataclasses.replace(job, submit=job.submit * factor) for job in workload.jobs
        )
    except WorkloadError as error:
        raise WorkloadError(f"shrinking factor {factor:g}: {error}") from None
