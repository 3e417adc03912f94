"""The use of processors by jobs, computed from the phases that the server keeps.

A phase is a period in which a job had the same processors.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pliant.client.listing.displayed_job_ids import TITLE_FIELDS
from pliant.core.values.speedup import parse_speedup

Record = dict[str, Any]
_DAY_S = 86400.0


def job_records(
    jobs: Iterable[Mapping[str, Any]], phases: Iterable[Mapping[str, Any]], now: float
) -> list[Record]:
    """Return a record of each job with its phases, its wait and its efficiency.

    A phase is a period in which a job had the same processors.

    Args:
        jobs: the jobs, as ``jobstat --json`` shows them.
        phases: the phases of these jobs, in order of time. A phase without an end continues.
        now: seconds since the epoch; a phase that continues counts up to this time.
    """
    by_job: dict[int, list[Record]] = {}
    for phase in phases:
        by_job.setdefault(phase["job"], []).append(_phase(phase, now))
    return [_record(job, by_job.get(job["id"], []), now) for job in jobs]


def accounted(jobs: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the records to list: jobs, started array tasks, and up to two lines for each array.

    An array has one line for all its pending tasks, and one for all its tasks that were cancelled
    before they started. Tasks that have started are jobs of their own.
    """
    for job in jobs:
        array = job.get("array")
        if array is None:
            yield job
            continue
        if array["pending"]:
            yield job
        if array["cancelled_tasks"]:
            cancelled = {"state": "CANCELLED", "tasks": array["cancelled_tasks"]}
            yield {**job, **cancelled, "start": None, "exit_code": None}


def _phase(phase: Mapping[str, Any], now: float) -> Record:
    seconds = max(0.0, (now if phase["end"] is None else phase["end"]) - phase["start"])
    return {
        **{name: phase[name] for name in ("run", "start", "end", "processors", "nodes")},
        "processor_s": phase["processors"] * seconds,
    }


def step_record(step: Mapping[str, Any]) -> Record:
    """Return a step of a job script with ``phases``, periods in which its size stayed the same.

    The server keeps only the first sizes of a step that changed its size often. The last phase
    that is returned therefore lasts until the end of the step.

    Args:
        step: the step as the server sends it, with ``sizes``, a list of pairs (start of the size,
            processors).
    """
    ends = [*(start for start, _ in step["sizes"][1:]), step["end"]]
    phases = [
        {
            "start": start,
            "end": end,
            "processors": processors,
            "processor_s": processors * max(0.0, end - start),
        }
        for (start, processors), end in zip(step["sizes"], ends, strict=True)
    ]
    return {**step, "phases": phases}


def _record(job: Mapping[str, Any], phases: list[Record], now: float) -> Record:
    start = min((phase["start"] for phase in phases), default=job["start"])
    used = sum(phase["processor_s"] for phase in phases)
    # A job that has not started still waits; one that was cancelled before waited until its end.
    until = start if start is not None else job["end"] if job["end"] is not None else now
    fields = ("id", "name", "user", "account", "class", "type", "state", "submit")
    return {
        **{name: job.get(name) for name in fields},
        **{name: job[name] for name in TITLE_FIELDS if name in job},
        "start": start,
        "end": job["end"],
        "exit_code": job.get("exit_code"),
        "signal": job.get("signal"),
        "wait_s": max(0.0, until - job["submit"]),
        "run_s": sum(_seconds(phase) for phase in phases),
        "processor_s": used,
        "efficiency": efficiency(phases, job.get("speedup") or "linear"),
        "estimate_s": job.get("estimate_s"),
        "time_limit_s": job.get("time_limit_s"),
        "sizes": job.get("sizes"),
        "phases": phases,
    }


def _seconds(phase: Mapping[str, Any]) -> float:
    return phase["processor_s"] / phase["processors"] if phase["processors"] else 0.0


def efficiency(phases: Iterable[Mapping[str, Any]], speedup: str) -> float | None:
    """Return the efficiency of a job: its work per processor-second; None if it has not run.

    The work is the time multiplied by the speedup, which the speedup model of the job states for
    its size. So the efficiency is 1 for linear speedup. Pauses of resizes count as work.

    Args:
        phases: the periods in which the job had the same processors, with ``processors`` and
            ``processor_s`` (processor-seconds).
        speedup: the speedup model that was given when the job was submitted.
    """
    model = parse_speedup(speedup)
    used = work = 0.0
    for phase in phases:
        used += phase["processor_s"]
        work += _seconds(phase) * model(max(1, phase["processors"]))
    return work / used if used else None


def sizes_text(record: Mapping[str, Any], *, most: int = 4) -> str:
    """Return the sizes of a job over time: ``2 for 1m00s, 4 for 30s``.

    Args:
        record: the job with its phases (periods with the same processors), as `job_records`
            returns it.
        most: the largest number of sizes to name; the others are only counted.
    """
    from pliant.client.terminal.durations import format_duration

    parts = [
        f"{phase['processors']} for {format_duration(_seconds(phase))}"
        for phase in record["phases"]
    ]
    if len(parts) > most:
        parts = [*parts[:most], f"and {len(parts) - most} more"]
    return ", ".join(parts) or "-"


def sums(records: Iterable[Record], by: str, since: float | None, until: float) -> list[Record]:
    """Return a row for each value of the field ``by``: its jobs, processor-seconds and mean wait.

    The field is user, account, name, state or day. Only use from ``since`` to ``until`` counts.
    By day, processor-seconds are split at midnight, and a job counts on each day on which it had
    processors.
    """
    found: dict[Any, Record] = {}
    waits: dict[Any, list[float]] = {}
    for record in records:
        keys: dict[Any, float] = {}
        for phase in record["phases"]:
            for key, processor_s in _parts(record, phase, by, since, until):
                keys[key] = keys.get(key, 0.0) + processor_s
        if by != "day":
            keys = keys or {record[by] or "": 0.0}
        for key, processor_s in keys.items():
            row = found.setdefault(key, {by: key, "jobs": 0, "processor_s": 0.0})
            row["jobs"] += 1
            row["processor_s"] += processor_s
            waits.setdefault(key, []).append(record["wait_s"])
    return [
        {**found[key], "mean_wait_s": sum(waits[key]) / len(waits[key])} for key in sorted(found)
    ]


def _parts(
    record: Record, phase: Record, by: str, since: float | None, until: float
) -> Iterator[tuple[Any, float]]:
    begin = phase["start"] if since is None else max(phase["start"], since)
    end = min(until, phase["start"] + _seconds(phase))
    if by != "day":
        yield record[by] or "", phase["processors"] * max(0.0, end - begin)
        return
    while begin < end:
        day = time.localtime(begin)
        # mktime corrects a day that the month does not have, and days that are not 24 hours long.
        midnight = time.mktime((day.tm_year, day.tm_mon, day.tm_mday + 1, 0, 0, 0, 0, 0, -1))
        last = min(end, midnight)
        yield time.strftime("%Y-%m-%d", day), phase["processors"] * (last - begin)
        begin = last


#: Fields of a record of the Standard Workload Format.
_SWF_FIELDS = 18


def swf_lines(records: Sequence[Record], processors: int) -> Iterator[str]:
    """Yield a line of the Standard Workload Format for each ended job that has run.

    The number of allocated processors is the mean over time, because the format knows no resizes.

    Args:
        records: the records, as `job_records` returns them.
        processors: the number of processors of the cluster.
    """
    ended = [r for r in records if r["end"] is not None and r["phases"] and r["run_s"] > 0]
    ended.sort(key=lambda record: (record["submit"], record["id"]))
    begin = int(min((record["submit"] for record in ended), default=0.0))
    yield "; Version: 2.2"
    yield "; Computer: Pliant"
    yield f"; UnixStartTime: {begin}"
    yield f"; MaxJobs: {len(ended)}"
    yield f"; MaxProcs: {processors}"
    yield "; Note: allocated processors are the mean over the phases of a job"
    users: dict[str, int] = {}
    groups: dict[str, int] = {}
    names: dict[str, int] = {}
    for record in ended:
        size = max(1, round(record["processor_s"] / record["run_s"]))
        fields = [-1] * _SWF_FIELDS
        fields[0] = record["id"]
        fields[1] = round(record["submit"] - begin)
        fields[2] = round(record["wait_s"])
        fields[3] = round(record["run_s"])
        fields[4] = fields[7] = size
        fields[8] = round(record["estimate_s"] or record["time_limit_s"] or -1)
        fields[10] = {"COMPLETED": 1, "CANCELLED": 5}.get(record["state"], 0)
        fields[11] = users.setdefault(record["user"], len(users) + 1)
        fields[12] = groups.setdefault(record["account"] or "", len(groups) + 1)
        fields[13] = names.setdefault(record["name"], len(names) + 1)
        yield " ".join(map(str, fields))
