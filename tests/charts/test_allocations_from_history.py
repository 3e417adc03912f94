"""What each job held over time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pliant.charts.allocations_from_history import HUES, JobTracks


def event(time: float, kind: str, job: int = 1, **data: Any) -> dict[str, Any]:
    return {"seq": int(time * 1000), "time": time, "kind": kind, "job": job, "data": data}


def held_over_time(tracks: JobTracks, job: int = 1) -> list[tuple[float, float | None, int]]:
    segments = tracks.by_job[job].segments
    return [(each.start, each.end, len(each.processors)) for each in segments]


def apply(*events: dict[str, Any]) -> JobTracks:
    tracks = JobTracks()
    for each in events:
        tracks.apply(each)
    return tracks


def test_a_shrink_counts_when_the_processors_are_released() -> None:
    resized = event(20, "job.resized", direction="shrink", processors=[0, 1], to=2, **{"from": 4})
    tracks = apply(
        event(10, "job.started", processors=[0, 1, 2, 3]),
        resized,
        event(21, "processors.released", processors=[3]),
        event(22, "processors.released", processors=[2]),
    )
    assert held_over_time(tracks) == [(10, 21, 4), (21, 22, 3), (22, None, 2)]


def test_processors_that_were_released_before_the_commit_do_not_return() -> None:
    tracks = apply(
        event(10, "job.started", processors=[0, 1, 2]),
        event(15, "processors.released", processors=[2]),
        event(20, "job.resized", direction="shrink", processors=[0, 1]),
    )
    assert held_over_time(tracks) == [(10, 15, 3), (15, None, 2)]


def test_a_growth_counts_when_it_is_committed() -> None:
    tracks = apply(
        event(10, "job.started", processors=[0]),
        event(20, "job.resized", direction="grow", processors=[0, 1]),
        event(30, "job.ended", state="COMPLETED"),
    )
    assert held_over_time(tracks) == [(10, 20, 1), (20, 30, 2)]
    assert tracks.by_job[1].state == "COMPLETED"


def test_refusals_and_counter_offers_are_marked() -> None:
    tracks = apply(
        event(1, "offer.answered", answer="ACCEPT"),
        event(2, "offer.answered", answer="REJECT"),
        event(3, "offer.answered", answer="COUNTER"),
        event(4, "resize.rolled_back"),
    )
    assert tracks.by_job[1].marks == [(2, "refused"), (3, "counter"), (4, "refused")]


def test_a_job_that_started_before_the_window_is_taken_from_its_row() -> None:
    tracks = JobTracks()
    row = {"id": 7, "name": "x", "user": "ann", "sizes": "1-4", "state": "RUNNING"}
    tracks.update_from_row({**row, "submit": 1.0, "start": 2.0, "end": None, "procs": "0-2,5"})
    assert held_over_time(tracks, 7) == [(2.0, None, 4)]
    tracks.update_from_row(
        {**row, "state": "FAILED", "submit": 1.0, "start": 2.0, "end": 9.0, "procs": ""}
    )
    assert held_over_time(tracks, 7) == [(2.0, 9.0, 4)]


def test_running_jobs_have_different_colours() -> None:
    tracks = apply(*(event(k, "job.started", job=k, processors=[k]) for k in range(1, HUES + 1)))
    assert len({track.hue for track in tracks.by_job.values()}) == HUES


def test_a_colour_is_kept_for_life() -> None:
    started = event(1, "job.started", processors=[0])
    tracks = apply(started)
    hue = tracks.by_job[1].hue
    for each in (event(2, "job.queued"), event(3, "job.started", processors=[1])):
        tracks.apply(each)
    assert tracks.by_job[1].hue == hue


def test_ended_jobs_outside_the_window_are_dropped() -> None:
    tracks = apply(
        event(1, "job.submitted", job=1),
        event(2, "job.ended", job=1, state="COMPLETED"),
        event(3, "job.submitted", job=2),
    )
    assert tracks.drop_ended(10.0) == [1]
    assert list(tracks.by_job) == [2]


def test_the_past_of_a_long_job_is_forgotten() -> None:
    tracks = apply(event(0, "job.started", processors=[0]))
    for time in range(1, 100):
        tracks.apply(event(time, "job.resized", direction="grow", processors=range(time % 2 + 1)))
        tracks.apply(event(time, "offer.expired"))
    assert tracks.drop_ended(98.5) == []
    assert held_over_time(tracks) == [(98.0, 99.0, 1), (99.0, None, 2)]
    assert [time for time, _ in tracks.by_job[1].marks] == [99.0]
    assert tracks.drop_ended(1000.0) == []
    assert held_over_time(tracks) == [(99.0, None, 2)]


@given(st.lists(st.tuples(st.sampled_from("+-"), st.frozensets(st.integers(0, 9))), max_size=20))
def test_segments_follow_each_other(changes: list[tuple[str, frozenset[int]]]) -> None:
    tracks = JobTracks()
    for time, (kind, processors) in enumerate(changes):
        name = "processors.released" if kind == "-" else "job.resized"
        tracks.apply(event(time, name, direction="grow", processors=sorted(processors)))
    segments = tracks.track(1).segments
    for before, after in pairwise(segments):
        assert before.end is not None
        assert before.start < before.end <= after.start
        assert before.end < after.start or before.processors != after.processors
