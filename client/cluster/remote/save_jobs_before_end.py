"""Save jobs before their nodes go away: malleable jobs write a checkpoint and wait in the queue."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pliant.client.client_errors import NoServerError, RequestError
from pliant.client.cluster.local_cluster import DOWN_REASON
from pliant.client.connection import Connection

_POLL_S = 0.1
_HOLDS_PROCESSORS = {"STARTING", "RUNNING", "ADAPTING", "COMPLETING"}


@dataclass
class SavedJobs:
    """The jobs that were saved before their nodes went away, and those that had to be cancelled."""

    #: They wait in the queue, and continue from a checkpoint.
    saved: list[int] = field(default_factory=list)
    #: They could not be saved, and were cancelled.
    cancelled: list[int] = field(default_factory=list)


def save_jobs(
    run: str, save_until: float, cancel_at: float, clock: Callable[[], float] = time.time
) -> SavedJobs:
    """Save the malleable jobs; let other jobs run until ``cancel_at``, then cancel them.

    All nodes are drained first, so that no job starts. Return which jobs were saved or cancelled.

    Args:
        run: the run folder of the server.
        save_until: the time at which attempts to save jobs end, in seconds since the epoch.
        cancel_at: the time at which running jobs are cancelled, in seconds since the epoch.
        clock: returns seconds since the epoch.

    Raises:
        NoServerError: no server answers.
    """
    saved = SavedJobs()
    asked: set[int] = set()
    with Connection(run, timeout_s=10) as link:
        for node in link.request("nodes")["nodes"]:
            if str(node["state"]).upper() == "UP":
                _try(link, "drain", node=node["name"], reason=DOWN_REASON)
        while (jobs := _active(link)) and clock() < cancel_at:
            if clock() < save_until:
                # A refusal is not final: a job may be starting, or busy with a resize.
                asked |= {job for job in jobs if job not in asked and _try(link, "suspend", id=job)}
            time.sleep(_POLL_S)
            _requeue_suspended(link, asked, saved)
        _requeue_suspended(link, asked, saved)
        saved.cancelled = _cancel(link, clock)
    return saved


def _requeue_suspended(link: Connection, asked: set[int], saved: SavedJobs) -> None:
    """Requeue the jobs that are suspended now, so that the next cluster continues them.

    Args:
        link: the connection to the server.
        asked: the ids of the jobs that were asked to write a checkpoint and suspend.
        saved: the jobs that were saved so far; the requeued jobs are added.
    """
    waiting = sorted(asked.difference(saved.saved))
    if not waiting:
        return
    for job in link.request("jobs", ids=waiting, all=True)["jobs"]:
        if job["state"] == "SUSPENDED" and _try(link, "resume_job", id=job["id"]):
            saved.saved.append(int(job["id"]))


def _cancel(link: Connection, clock: Callable[[], float], timeout_s: float = 10.0) -> list[int]:
    jobs, deadline = _active(link), clock() + timeout_s
    if jobs:
        _try(link, "cancel", ids=jobs)
    while _active(link) and clock() < deadline:
        time.sleep(_POLL_S)
    return jobs


def _active(link: Connection) -> list[int]:
    jobs: list[dict[str, Any]] = link.request("jobs", ids=None, all=False)["jobs"]
    # An array holds no processors, its tasks do.
    tasks_and_jobs = (job for job in jobs if "array" not in job)
    return [int(job["id"]) for job in tasks_and_jobs if job["state"] in _HOLDS_PROCESSORS]


def _try(link: Connection, op: str, **fields: Any) -> bool:
    """Send a request; return True if the server carried it out, False if it refused."""
    try:
        link.request(op, **fields)
    except NoServerError:
        raise
    except RequestError:
        return False
    return True
