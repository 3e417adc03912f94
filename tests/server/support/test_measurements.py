"""Counters and histograms of the server."""

from __future__ import annotations

from pliant.server.support.measurements import BOUNDS, MAX_LABELS, OTHER, Measurements


def test_values_fall_into_the_first_bucket_that_holds_them() -> None:
    measurements = Measurements()
    for value in (1, 2, 3, 5000):
        measurements.observe("commit_rows", value)
    found = measurements.snapshot()["histograms"]["commit_rows"]
    ((labels, counts, total),) = found["series"]
    assert (labels, total) == ([], 5006)
    by_bound = dict(zip([*found["bounds"], "more"], counts, strict=True))
    assert {bound: n for bound, n in by_bound.items() if n} == {1: 1, 2: 1, 4: 1, "more": 1}


def test_the_number_of_series_is_bounded() -> None:
    measurements = Measurements()
    for number in range(MAX_LABELS + 50):
        measurements.count("jobs_ended", str(number))
        measurements.observe("request_seconds", 0.1, str(number))
    found = measurements.snapshot()
    counted = {labels[0]: n for labels, n in found["counters"]["jobs_ended"]}
    assert (len(counted), counted[OTHER]) == (MAX_LABELS + 1, 50)
    assert len(found["histograms"]["request_seconds"]["series"]) == MAX_LABELS + 1


def test_bounds_grow() -> None:
    assert all(list(bounds) == sorted(set(bounds)) for bounds in BOUNDS.values())
