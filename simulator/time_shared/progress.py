"""Progress of the jobs of a node, which share one processor and one paging disk."""

from __future__ import annotations

from collections.abc import Sequence


def paging_times(
    demands: Sequence[float], total: float, memory: float, faults: float, service_s: float
) -> list[float]:
    """Return the paging time of each job, in seconds per second of its processor time.

    A job faults in proportion to its share of the demand, and to the demand that exceeds the
    memory. Chen, Xiao and Zhang 2002 take their fault model from a source that they do not print,
    so this one is assumed.

    Args:
        demands: the present demands of the jobs that compute, in bytes.
        total: the demand of all jobs on the node, in bytes.
        memory: the bytes that jobs may use.
        faults: page faults per second of processor time of a single job that demands twice the
            memory.
        service_s: the time that the disk takes for a fault.
    """
    if total <= memory:
        return [0.0] * len(demands)
    each_byte = service_s * faults * (total - memory) / (memory * total)
    return [each_byte * demand for demand in demands]


def progress(paging: Sequence[float], efficiency: float, *, overlap: bool = True) -> list[float]:
    """Return the processor time of each job per second.

    With ``overlap``, other jobs compute while a job waits for its pages. The rates are then the
    max-min fair ones under three limits: a job cannot compute and page at the same time, the disk
    serves one fault at a time, and the processor serves one job at a time. Without ``overlap``, a
    job that waits for its pages wastes its time slice.

    Args:
        paging: the paging time of each job, per second of its processor time.
        efficiency: the fraction of processor time that is left to jobs after context switches.
        overlap: whether other jobs compute while a job waits for its pages.
    """
    count = len(paging)
    if not overlap:
        return [efficiency / count / (1 + each) for each in paging]
    total = sum(paging)
    level = efficiency / count
    if total * level > 1:
        level = 1 / total
    if level * (1 + max(paging)) <= 1 and (min(paging) > 0 or level * count >= efficiency):
        return [level] * count
    return _fill(paging, efficiency)


def _fill(paging: Sequence[float], efficiency: float) -> list[float]:
    """Return each job's speed: all speeds rise equally until the processor or the disk is busy.

    Args:
        paging: the paging time of each job, per second of its processor time.
        efficiency: the fraction of processor time that is left to jobs after context switches.
    """
    rates = [0.0] * len(paging)
    processor, disk = efficiency, 1.0
    # Jobs that page most have the lowest limit of their own.
    open_jobs = sorted(range(len(paging)), key=lambda job: -paging[job])
    total = sum(paging)
    while open_jobs:
        job = open_jobs[0]
        level = processor / len(open_jobs)
        is_disk = total > 0 and disk / total < level
        level = disk / total if is_disk else level
        own = 1 / (1 + paging[job])
        if own < level:
            fixed = [job]
            level = own
        else:  # The disk limits only the jobs that page; the processor limits all.
            fixed = [each for each in open_jobs if paging[each] > 0 or not is_disk]
        for each in fixed:
            rates[each] = level
            processor -= level
            disk = max(0.0, disk - level * paging[each])
            total -= paging[each]
        open_jobs = [each for each in open_jobs if each not in fixed]
        total = sum(paging[each] for each in open_jobs)
    return rates
