"""The picture of a cluster, now or in the past, from its accounting and its history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pliant.charts.allocations_from_history import JobTracks
from pliant.charts.history_timeline import node_rows, with_unknown
from pliant.charts.job_sizes_over_time import Band, band_of
from pliant.charts.layout import SHORTEST_S, Window
from pliant.charts.processor_gantt import Lanes
from pliant.charts.timeline import Timeline
from pliant.charts.usable_processors import UsableProcessors
from pliant.client.client_errors import ClientError
from pliant.client.connection import Connection

#: What is shown without ``--since``, seconds.
DAY_S = 86400.0
#: The picture begins this part of its length before the first job, if that is later than asked.
_MARGIN = 0.02
#: Kinds of events that say what jobs held, how they negotiated, and which nodes were up.
_KINDS = (
    *("job.submitted", "job.started", "job.resized", "job.ended", "job.suspended", "job.queued"),
    *("processors.released", "offer.answered", "offer.expired", "offer.declined"),
    *("resize.rolled_back", "node.state", "node.registered", "node.removed"),
)
#: Values of a job.
_FIELDS = ["id", "name", "user", "submit", "end"]
#: Events and jobs of one request.
_EVENTS_AT_ONCE = 20_000
_JOBS_AT_ONCE = 5_000


def live_timeline(
    ids: Sequence[int] = (),
    *,
    since: float | None = None,
    until: float | None = None,
    by_processor: bool = False,
    title: str | None = None,
) -> Timeline:
    """Return the data of a picture: which processors the jobs of the cluster held, and when.

    Args:
        ids: only these jobs, all if empty.
        since: the beginning, in seconds since the epoch. By default a day before now, or, if no job
            held processors then, a little before the first job did.
        until: the end, in seconds since the epoch; by default now.
        by_processor: draw which processors the jobs held.
        title: the line above the picture.

    Raises:
        ClientError: there is no such job, or there are more jobs than one picture can show.
    """
    with Connection() as link:
        answer = link.request("nodes")
        now = float(answer["now"])
        end = now if until is None else min(until, now)
        start = end - DAY_S if since is None else since
        fields: dict[str, Any] = {"ids": list(ids) or None, "since": start, "until": end}
        found = link.request("accounting", **fields)
        if not found["complete"]:
            raise ClientError("there are more jobs than one answer holds: narrow --since")
        phases = found["phases"]
        jobs = _jobs(link, ids, start, phases)
        tracks, usable = JobTracks(), UsableProcessors()
        _apply_earlier(link, tracks, phases, start)
        for event in _events(link, start, end):
            usable.apply(event)
            tracks.apply(event)
    bands = _bands(tracks, jobs, ids)
    starts = [band.holds[0].start for band in bands if band.holds]
    if since is None and starts and min(starts) > start:
        start = min(starts) - (end - min(starts)) * _MARGIN
    rows = node_rows(answer["nodes"])
    used = (index for band in bands for hold in band.holds for index in hold.processors)
    usable.set_nodes(answer["nodes"])
    whose = "" if found["all_users"] else " (your own jobs)"
    return Timeline(
        bands,
        sum(row.slots for row in rows),
        Window(start, max(end, start + SHORTEST_S), now),
        title or f"Processors over time, {answer['strategy']}{whose}",
        is_clock=True,
        usable=usable.steps(start),
        lanes=Lanes(with_unknown(rows, used)) if by_processor else None,
    )


def _jobs(
    link: Connection, ids: Sequence[int], since: float, phases: Sequence[Mapping[str, Any]]
) -> dict[int, Mapping[str, Any]]:
    """Return the server's records of jobs by id: the jobs in ``phases``, ``ids``, and waiting ones.

    Waiting jobs are left out if ``ids`` names jobs. A phase is a period in which a job had the same
    processors.
    """
    found = {}
    if not ids:
        found = _rows(link.request("jobs", all=True, since=since, fields=_FIELDS))
    more = sorted({*ids, *(int(phase["job"]) for phase in phases)} - found.keys())
    for place in range(0, len(more), _JOBS_AT_ONCE):
        part = more[place : place + _JOBS_AT_ONCE]
        answer = link.request("jobs", ids=part, all=True, fields=_FIELDS)
        found |= _rows(answer)
        for number in answer["missing"]:
            if number in ids:
                raise ClientError(f"there is no job {number}")
    return found


def _rows(answer: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """Return the jobs of an answer of the server by their ids."""
    jobs = answer.get("jobs")  # an older server answers with whole jobs
    if jobs is None:
        jobs = [dict(zip(answer["fields"], row, strict=True)) for row in answer["rows"]]
    return {int(job["id"]): job for job in jobs}


def _events(link: Connection, since: float, until: float) -> Iterator[Mapping[str, Any]]:
    after = 0
    while True:
        fields: dict[str, Any] = {"since": since, "until": until, "limit": _EVENTS_AT_ONCE}
        answer = link.request("history", id=None, after=after, kinds=list(_KINDS), **fields)
        yield from answer["events"]
        following = answer.get("next")
        if "complete" not in answer and len(answer["events"]) == _EVENTS_AT_ONCE:
            following = answer["events"][-1]["seq"]  # an older server
        if following is None:
            return
        after = following


def _apply_earlier(
    link: Connection, tracks: JobTracks, phases: Sequence[Mapping[str, Any]], since: float
) -> None:
    """Apply to ``tracks`` the events of jobs from before ``since``, the beginning of the picture.

    Only jobs that had processors at that time are looked up. They are found in ``phases``, the
    periods in which a job had the same processors.
    """
    for number in sorted({int(p["job"]) for p in phases if p["start"] < since}):
        answer = link.request("history", id=number, until=since, kinds=list(_KINDS))
        for event in answer["events"]:
            if event["time"] < since:
                tracks.apply(event)


def _bands(
    tracks: JobTracks, jobs: Mapping[int, Mapping[str, Any]], ids: Sequence[int]
) -> list[Band]:
    """Return a band, the shape of a job in the picture, for each wanted job, also for waiting ones.

    An empty list ``ids`` means all jobs.
    """
    for number in jobs:
        tracks.track(number)
    return [
        _named(band_of(track), jobs.get(track.id, {}))
        for track in tracks.by_job.values()
        if not ids or track.id in ids
    ]


def _named(band: Band, job: Mapping[str, Any]) -> Band:
    return band._replace(
        name=str(job.get("name") or band.name or ""),
        user=str(job.get("user") or band.user or ""),
        submit=job.get("submit", band.submit),
        end=job.get("end", band.end),
    )
