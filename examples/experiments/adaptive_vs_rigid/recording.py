"""The record of a real run: its jobs, resizes and refusals, and the metrics of the simulator.

Times are in wall-clock seconds from the planned submission of a job that arrives at 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pliant.client.api import Client, Event
from pliant.core.support.natural_order import natural_order
from pliant.simulator.inputs.workload import SimJob

Tree = dict[str, Any]
#: Events that end an offer or a resize without a change of size.
_ENDS = {
    "offer.declined": "declined",
    "offer.expired": "expired",
    "offer.withdrawn": "withdrawn",
    "resize.rolled_back": "rolled back",
}


def job_record(client: Client, number: int, job: SimJob, begin: float, output: Path) -> Tree:
    """Return the record of an ended job: its times, sizes and resizes.

    Args:
        client: the connection to the server.
        number: the number of the job there.
        job: the job in the workload.
        begin: the time 0, in seconds since the epoch.
        output: the file with the output of the job.
    """
    ended, usage, history = client.job(number), client.usage(number), client.history(number)
    printed = _printed(output)
    return {
        "id": job.id,
        "sizes": str(job.sizes),
        "malleable": job.malleable,
        "requested": job.requested,
        "work": job.work,
        "state": ended.state,
        "reason": ended.reason,
        "submit_s": _since(ended.submit, begin),
        "start_s": _since(ended.start, begin),
        "first_iteration_s": _since(printed.get("begin"), begin),
        "last_iteration_s": _since(printed.get("end"), begin),
        "end_s": _since(ended.end, begin),
        "late_s": printed.get("late_s"),
        "phases": [
            {
                "start_s": phase.start - begin,
                "end_s": _since(phase.end, begin),
                "processors": phase.processors,
            }
            for phase in usage.phases
        ],
        "resizes": resizes(history, begin),
    }


def _printed(output: Path) -> Tree:
    """Return the JSON line in the output of a job as data; empty if there is none."""
    try:
        lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found = [line for line in lines if line.startswith("{")]
    try:
        return dict(json.loads(found[-1])) if found else {}
    except ValueError:
        return {}


def _since(moment: float | None, begin: float) -> float | None:
    return None if moment is None else moment - begin


def resizes(history: Sequence[Event], begin: float) -> list[Tree]:
    """Return the offers to a job, with their answers and the resizes that followed."""
    found: dict[Any, Tree] = {}
    for event in history:
        number = event.data.get("resize")
        if number is None:
            continue
        entry = found.setdefault(number, {"resize": number, "outcome": "open"})
        at = event.time - begin
        if event.kind == "offer.sent":
            entry.setdefault("offered_s", at)
            entry["direction"], entry["cause"] = event.data.get("direction"), event.text
            entry["from"], entry["to"] = event.data.get("from"), event.data.get("size")
        elif event.kind == "offer.answered":
            entry["answered_s"], entry["answer"] = at, event.data.get("answer")
            entry["reason"] = event.data.get("reason") or entry.get("reason", "")
        elif event.kind == "resize.begun":
            entry["begun_s"] = at
        elif event.kind == "job.resized":
            entry |= {"done_s": at, "outcome": "done", "reason": ""}
            entry["from"], entry["to"] = event.data.get("from"), event.data.get("to")
            entry["seconds"] = dict(event.data.get("seconds", {}))
            entry["bytes_moved"] = event.data.get("bytes_moved")
        elif event.kind in _ENDS:
            entry |= {"done_s": at, "outcome": _ENDS[event.kind]}
            entry["reason"] = entry.get("reason") or event.data.get("reason") or event.text
    return list(found.values())


def refusals(jobs: Sequence[Tree]) -> list[Tree]:
    """Return the offers that led to no resize, with the reason of each."""
    return [
        {
            "job": job["id"],
            "at_s": entry.get("done_s", entry.get("offered_s")),
            "direction": entry.get("direction"),
            "from": entry.get("from"),
            "to": entry.get("to"),
            "outcome": entry["outcome"],
            "reason": entry.get("reason", ""),
        }
        for job in jobs
        for entry in job["resizes"]
        if entry["outcome"] != "done"
    ]


def metrics(jobs: Sequence[Tree], processors: int, scale: float) -> dict[str, float]:
    """Return the metrics of a real run under the names that the simulator uses.

    Args:
        jobs: the records of the jobs, with times in wall-clock seconds.
        processors: the number of processors of the cluster.
        scale: wall-clock seconds for each simulated second. Times of the result are in simulated
            seconds.
    """
    ran = [job for job in jobs if job["start_s"] is not None and job["end_s"] is not None]
    if not ran:
        return {"jobs": float(len(jobs)), "completed": 0.0}
    span = max(job["end_s"] for job in ran) - min(job["submit_s"] for job in ran)
    held = math.fsum(
        (phase["end_s"] - phase["start_s"]) * phase["processors"]
        for job in ran
        for phase in job["phases"]
        if phase["end_s"] is not None
    )
    work = math.fsum(job["work"] * scale for job in ran)
    entries = [entry for job in jobs for entry in job["resizes"]]

    def mean(begin: str, end: str) -> float:
        return math.fsum(job[end] - job[begin] for job in ran) / len(ran) / scale

    return {
        "jobs": float(len(jobs)),
        "completed": float(sum(job["state"] == "COMPLETED" for job in jobs)),
        "utilization": held / (processors * span),
        "utilization_work": work / (processors * span),
        "mean_wait_s": mean("submit_s", "start_s"),
        "mean_execution_s": mean("start_s", "end_s"),
        "mean_turnaround_s": mean("submit_s", "end_s"),
        "mean_response_s": mean("submit_s", "end_s"),
        "schedule_span_s": span / scale,
        "negotiations": float(len(entries)),
        "adaptations": float(sum(entry["outcome"] == "done" for entry in entries)),
        "refusals": float(len(refusals(jobs))),
    }


def read_results(folder: Path) -> list[Tree]:
    """Return the results of all files in a folder, in order of experiments and of their axes.

    Raises:
        ValueError: there is no result, or a file is not the result of a real run.
    """
    found = []
    for path in sorted(folder.glob("*/*.json"), key=lambda path: natural_order(str(path))):
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            result = None
        if not isinstance(result, dict) or not {"row", "jobs", "metrics"} <= set(result):
            raise ValueError(f"{path}: this is not the result of a real run")
        found.append(result)
    if not found:
        raise ValueError(f"--results {folder}: there are no results; use the action run first")
    return found
