"""Measure commits, and count and log the lines of the job history that they store."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from pliant.server.database.statements import INSERT_NOTE, Write
from pliant.server.support.log_setup import HISTORY_LOG
from pliant.server.support.measurements import OTHER, Measurements

#: Steps of the pause in a resize that appkit reports. Programs could report others.
_STEPS = frozenset({"check", "join", "move", "commit", "total"})
_ANSWERS = frozenset({"ACCEPT", "COUNTER", "REJECT"})
#: Outcomes of negotiations by kind of event.
_NEGOTIATIONS = {
    "offer.sent": "offered",
    "offer.repeated": "repeated",
    "offer.taken": "requested",
    "offer.countered": "countered_by_server",
    "offer.declined": "declined_by_server",
    "offer.withdrawn": "withdrawn",
    "offer.expired": "expired",
    "offer.ignored": "ignored",
}


def measure_commit(
    measurements: Measurements, seconds: float, transactions: int, changes: list[Write]
) -> None:
    """Add a durable commit to the measurements.

    Args:
        measurements: the counters and histograms of the server.
        seconds: the time that the commit took.
        transactions: the number of transactions that shared the commit.
        changes: all rows that it wrote.
    """
    measurements.observe("commit_seconds", seconds)
    measurements.observe("commit_transactions", transactions)
    measurements.observe("commit_rows", len(changes))
    lines = [change.values for change in changes if change.statement is INSERT_NOTE]
    _count_events(measurements, lines)
    if HISTORY_LOG.isEnabledFor(logging.INFO):
        for line in lines:
            _log(line)


def _count_events(measurements: Measurements, lines: Iterable[Mapping[str, Any]]) -> None:
    for line in lines:
        kind = str(line["kind"])
        if kind in _NEGOTIATIONS:
            measurements.count("negotiations", _NEGOTIATIONS[kind])
        elif kind in _WITH_DATA:
            _WITH_DATA[kind](measurements, json.loads(line["data"]))


def _log(line: Mapping[str, Any]) -> None:
    """Log a line of the history; its numbers and texts become fields of the log record."""
    data = json.loads(line["data"])
    fields = {key: value for key, value in data.items() if isinstance(value, int | float | str)}
    if line["job"] is not None:
        fields["job"] = line["job"]
    HISTORY_LOG.info("%s", line["text"], extra={"fields": {**fields, "event": line["kind"]}})


def _answered(measurements: Measurements, data: Mapping[str, Any]) -> None:
    answer = str(data.get("answer"))
    measurements.count("negotiations", answer.lower() if answer in _ANSWERS else OTHER)


def _resized(measurements: Measurements, data: Mapping[str, Any]) -> None:
    measurements.count("resizes", "grown" if data["direction"] == "grow" else "shrunk")
    for step, seconds in data["seconds"].items():
        known = step if step in _STEPS else OTHER
        measurements.observe("resize_step_seconds", float(seconds), known)


def _rolled_back(measurements: Measurements, _: Mapping[str, Any]) -> None:
    measurements.count("resizes", "rolled_back")


def _prepared(measurements: Measurements, data: Mapping[str, Any]) -> None:
    if "seconds" in data:  # it is missing if only the coordinator moved
        measurements.observe("resize_step_seconds", float(data["seconds"]), "prepare")


def _started(measurements: Measurements, _: Mapping[str, Any]) -> None:
    measurements.count("job_starts")


def _ended(measurements: Measurements, data: Mapping[str, Any]) -> None:
    measurements.count("jobs_ended", str(data["state"]))


_WITH_DATA = {
    "offer.answered": _answered,
    "job.resized": _resized,
    "resize.rolled_back": _rolled_back,
    "resize.prepared": _prepared,
    "job.started": _started,
    "job.ended": _ended,
}
