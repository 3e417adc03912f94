"""The simulated future of each job: its start, its sizes, and its end."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pliant.core.model.lifecycle import JobState
from pliant.simulator.inputs.settings import Settings
from pliant.simulator.run.result import JobRecord, Result, Span


def outcome(result: Result, settings: Settings, starts: Mapping[int, float]) -> dict[str, Any]:
    """Return the simulated future of all jobs, and means over them, as data for JSON.

    Args:
        result: of the simulation, with records and spans.
        settings: of the simulation.
        starts: the starts of jobs that run at the snapshot, in seconds relative to it (<= 0).

    Returns:
        ``jobs``: by number, ``start`` and ``end`` in seconds since the snapshot (None if it never
        starts), ``sizes`` in order, ``state`` and ``reason``. ``mean_wait_s`` and
        ``mean_response_s``: of the jobs that waited at the snapshot. ``end_s``: of the last job.
        ``utilization``: the fraction of the processors that jobs hold, on average up to ``end_s``.
        ``resizes``: their number.
    """
    sizes = _sizes(result.spans)
    waited = [job for job in result.jobs if job.id not in starts and job.start is not None]
    end_s = max((job.end for job in result.jobs), default=0.0)
    area = math.fsum((span.end - span.start) * len(span.processors) for span in result.spans)
    return {
        "strategy": settings.label,
        "jobs": {str(job.id): _job(job, sizes.get(job.id, []), starts) for job in result.jobs},
        "mean_wait_s": _mean([job.wait for job in waited]),
        "mean_response_s": _mean([job.turnaround for job in waited]),
        "end_s": end_s,
        "utilization": area / (end_s * settings.total) if end_s > 0 else 0.0,
        "resizes": sum(job.resizes for job in result.jobs),
    }


def _job(job: JobRecord, sizes: list[int], starts: Mapping[int, float]) -> dict[str, Any]:
    return {
        "start": starts.get(job.id, job.start),
        "end": None if job.start is None else job.end,
        "sizes": sizes,
        "state": job.state.value,
        "reason": job.reason if job.state is not JobState.COMPLETED else "",
    }


def _sizes(spans: Sequence[Span]) -> dict[int, list[int]]:
    """Return the sizes that each job has, in order, without repetitions."""
    found: dict[int, list[int]] = {}
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        sizes = found.setdefault(span.job, [])
        if span.end > span.start and sizes[-1:] != [len(span.processors)]:
            sizes.append(len(span.processors))
    return found


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
