"""What commits and the stored lines of the history count."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pliant.core.commands import Note
from pliant.core.values.ids import JobId
from pliant.server.database.commit_measurements import measure_commit
from pliant.server.database.statements import add_note, put_meta
from pliant.server.support.log_setup import HISTORY_LOG
from pliant.server.support.measurements import Measurements


def measured(*events: tuple[str, dict[str, Any]]) -> tuple[dict[str, int], dict[str, float]]:
    """Return the counters, and the sums of the histograms, after a commit of these events."""
    measurements = Measurements()
    notes = [add_note(Note(1.0, kind, "text", JobId(1), data)) for kind, data in events]
    measure_commit(measurements, 0.25, 2, [*notes, put_meta("a", "b")])
    found = measurements.snapshot()
    counters = {
        " ".join([name, *labels]): number
        for name, series in found["counters"].items()
        for labels, number in series
    }
    sums = {
        " ".join([name, *labels]): total
        for name, family in found["histograms"].items()
        for labels, _, total in family["series"]
    }
    return counters, sums


def test_a_commit_has_a_duration_and_sizes() -> None:
    _, sums = measured(("node.state", {}))
    assert sums == {"commit_seconds": 0.25, "commit_transactions": 2, "commit_rows": 2}


def test_a_negotiation_and_its_resize_are_counted() -> None:
    counters, sums = measured(
        ("offer.sent", {"resize": 1}),
        ("offer.answered", {"answer": "ACCEPT"}),
        ("resize.prepared", {"resize": 1, "seconds": 0.5}),
        ("resize.prepared", {"resize": 1}),
        ("job.resized", {"direction": "grow", "seconds": {"join": 0.1, "total": 0.3, "x": 2}}),
        ("resize.rolled_back", {"stage": "go"}),
        ("job.ended", {"state": "FAILED"}),
    )
    assert counters == {
        "negotiations offered": 1,
        "negotiations accept": 1,
        "resizes grown": 1,
        "resizes rolled_back": 1,
        "jobs_ended FAILED": 1,
    }
    steps = {key: value for key, value in sums.items() if key.startswith("resize_step")}
    assert steps == {
        "resize_step_seconds prepare": 0.5,
        "resize_step_seconds join": 0.1,
        "resize_step_seconds total": 0.3,
        "resize_step_seconds other": 2,
    }


def test_stored_lines_are_logged_with_their_values_as_fields(
    caplog: pytest.LogCaptureFixture,
) -> None:
    event = ("offer.answered", {"resize": 12, "answer": "ACCEPT", "wanted": [1, 2]})
    measured(event)
    assert not caplog.records  # only the form JSON has them
    with caplog.at_level(logging.INFO, HISTORY_LOG.name):
        measured(event)
    (record,) = caplog.records
    assert record.getMessage() == "text"
    expected = {"event": "offer.answered", "job": 1, "resize": 12, "answer": "ACCEPT"}
    assert record.__dict__["fields"] == expected
