"""Rows of views: what is kept is what would be made anew (``check_invariants`` compares, too)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from corekit.rig import Rig
from pliant.core import commands, events
from pliant.core.state.view_cache import ViewCache, ViewRow
from pliant.core.state.views import view
from pliant.core.values.ids import FIRST_START, JobId, NodeName

STEPS = st.lists(
    st.tuples(st.integers(1, 8), st.one_of(st.none(), st.integers(0, 3).map(float))), max_size=40
)


@given(STEPS)
def test_a_row_is_in_order_of_time_and_job(steps: list[tuple[int, float | None]]) -> None:
    row: ViewRow[str] = ViewRow()
    known: dict[int, tuple[float, str]] = {}
    for turn, (number, time) in enumerate(steps):
        if time is None:
            row.drop(JobId(number))
            known.pop(number, None)
        else:
            row.put(time, JobId(number), f"{turn}")
            known[number] = (time, f"{turn}")
        ordered = sorted((time, number, text) for number, (time, text) in known.items())
        assert row.values == tuple(text for _, _, text in ordered)


def test_a_job_is_in_one_row() -> None:
    rows = ViewCache()
    first: ViewRow[str] = ViewRow()
    second: ViewRow[str] = ViewRow()
    rows.put(first, 1.0, JobId(1), "a")
    rows.put(second, 2.0, JobId(1), "b")
    assert (first.values, second.values) == ((), ("b",))
    rows.drop(JobId(1))
    rows.drop(JobId(1))
    assert second.values == ()


def test_what_has_not_changed_is_the_same_object() -> None:
    rig = Rig({"n1": 4})
    rig.submit(1, "2")
    rig.submit(2, "4")
    before = view(rig.core.state)
    rig.submit(3, "4")
    after = view(rig.core.state)
    assert after.running is before.running
    assert after.nodes is before.nodes
    assert after.waiting[0] is before.waiting[0]
    assert [job.id for job in after.waiting] == [2, 3]


def planned(made: list[commands.Command]) -> bool:
    return any(isinstance(command, commands.RunStrategy) for command in made)


def test_a_job_that_cannot_be_resized_runs_without_a_new_plan() -> None:
    rig = Rig({"n1": 4})
    rig.submit(1, "2")
    up = events.WorldReady(JobId(1), 1, FIRST_START, NodeName("n1"))
    assert not planned(rig.core.handle(up, rig.now))
    rig.submit(2, "1-2")
    rig.up(2)
    job = rig.job(2)
    hello = events.ApplicationRegistered(job.id, 1, job.epoch, job.ranks, job.sizes)
    assert planned(rig.core.handle(hello, rig.now))
