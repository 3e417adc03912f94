"""Who of the queue starts: the definitions, case by case."""

from __future__ import annotations

import pytest

from corekit.views import make_view, running, waiting
from pliant.core.model.views_and_plans import RunningJob, WaitingJob
from pliant.core.values.speedup import Amdahl
from pliant.strategies.policies.backfill import WALKS, Backfill, preferred, smallest

#: 8 processors; 4 come free at 2000, 2 at 3000; 2 are free now (at 1000).
ACTIVE = (running(1, 0, 4, end=2000.0), running(2, 4, 2, end=3000.0))


def walk(
    backfill: Backfill,
    queue: list[WaitingJob],
    active: tuple[RunningJob, ...] = ACTIVE,
    total: int = 8,
) -> dict[int, int]:
    view = make_view(total, tuple(queue), active)
    free = view.free.bit_count()
    return {job.id: size for job, size in WALKS[backfill](queue, view, free, preferred)}


def test_strict_order() -> None:
    queue = [waiting(5, "1"), waiting(6, "2", 10.0), waiting(7, "1", 10.0)]
    assert walk("none", queue) == {5: 1}


@pytest.mark.parametrize(
    ("head", "job", "starts"),
    [
        # The first needs 5: shadow 2000, extra 1.
        ("5", waiting(9, "2", 1000.0), True),  # ends exactly at the shadow
        ("5", waiting(9, "2", 1001.0), False),
        ("5", waiting(9, "1", 5000.0), True),  # within extra
        ("5", waiting(9, "1"), True),  # within extra, however long
        ("5", waiting(9, "2"), False),
        ("5", waiting(9, "3", 1.0), False),  # does not fit
        ("8", waiting(9, "1", 2000.0), True),  # shadow 3000, extra 0
        ("8", waiting(9, "1", 2001.0), False),
    ],
)
def test_easy_backfilling_starts_only_jobs_that_do_not_delay_the_head(
    head: str, job: WaitingJob, starts: bool
) -> None:
    found = walk("easy", [waiting(8, head, 100.0), job])
    assert found == ({9: job.sizes.min} if starts else {})


def test_easy_counts_all_who_end_at_the_shadow() -> None:
    active = (running(1, 0, 3, end=2000.0), running(2, 3, 3, end=2000.0))
    # Needs 5: 2 + 3 would do, but at 2000 all 8 are free: extra is 3, of which 2 are there now.
    assert walk("easy", [waiting(8, "5", 1.0), waiting(9, "2", 9999.0)], active) == {9: 2}


def test_easy_uses_extra_up_but_not_for_those_that_end_in_time() -> None:
    active = (running(1, 0, 4, end=2000.0),)
    queue = [
        waiting(6, "6", 1.0),  # shadow 2000, extra 2
        waiting(7, "1", 900.0),
        waiting(8, "2", 9999.0),
        waiting(9, "1", 9999.0),
    ]
    assert walk("easy", queue, active) == {7: 1, 8: 2}


def test_easy_counts_those_that_start_in_this_pass() -> None:
    queue = [waiting(6, "1", 500.0), waiting(7, "6", 1.0), waiting(8, "1", 1001.0)]
    # Without job 6 the shadow is 3000; its end at 1500 changes nothing: 1 + 1 + 4 at 2000.
    assert walk("easy", queue) == {6: 1}
    queue[2] = waiting(8, "1", 1000.0)
    assert walk("easy", queue) == {6: 1, 8: 1}


def test_easy_protects_the_first_only_and_conservative_everybody() -> None:
    # Job 7 is planned for 2000 and leaves 2; all 8 are there for job 8 at 2100.
    queue = [waiting(7, "5", 100.0), waiting(8, "6", 100.0), waiting(9, "1", 5000.0)]
    active = (running(1, 0, 6, end=2000.0), running(2, 6, 1, end=2050.0))
    assert walk("easy", queue, active) == {9: 1}
    queue[1] = waiting(8, "8", 100.0)
    assert walk("easy", queue, active) == {9: 1}
    assert walk("conservative", queue, active) == {}
    queue[2] = waiting(9, "1", 1100.0)
    assert walk("conservative", queue, active) == {9: 1}


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_nobody_passes_while_it_is_not_known_when_the_first_fits(backfill: Backfill) -> None:
    active = (running(1, 0, 6),)
    assert walk(backfill, [waiting(8, "4", 10.0), waiting(9, "1", 10.0)], active) == {}
    # Nor while it waits for nodes that are silent.
    assert walk(backfill, [waiting(8, "9", 10.0), waiting(9, "1", 10.0)]) == {}


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_an_overdue_job_counts_as_ending_now(backfill: Backfill) -> None:
    active = (running(1, 0, 6, end=900.0),)
    queue = [waiting(7, "4", 10.0), waiting(8, "2", 10.0), waiting(9, "4", 10.0)]
    # Job 7 may start at any moment; job 8 leaves it what it needs, job 9 does not fit.
    assert walk(backfill, queue, active) == {8: 2}


def test_conservative_starts_nobody_on_what_an_overdue_job_holds() -> None:
    active = (running(1, 0, 8, end=900.0),)
    assert walk("conservative", [waiting(7, "1", 10.0)], active) == {}


@pytest.mark.parametrize("backfill", WALKS)
def test_moldable_jobs_start_at_their_preferred_size_or_below(backfill: Backfill) -> None:
    assert walk(backfill, [waiting(5, "1-8", 10.0)], ()) == {5: 8}
    assert walk(backfill, [waiting(5, "1-8", 10.0, prefer=3)], ()) == {5: 3}
    assert walk(backfill, [waiting(5, "1-8:pow2", 10.0)], (), total=7) == {5: 4}
    assert walk(backfill, [waiting(5, "1-8", 10.0), waiting(6, "4-8", 1.0)], ()) == {5: 8}


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_moldable_jobs_backfill_on_what_lets_them_end_in_time(backfill: Backfill) -> None:
    head = waiting(8, "7", 100.0)  # shadow 3000, extra 1
    # 1500 s on 2: in time at 2; 3000 s on 1 would not be, but 1 is extra.
    assert walk(backfill, [head, waiting(9, "1-2", 1500.0, requested=2)]) == {9: 2}
    assert walk(backfill, [head, waiting(9, "1-2", 2500.0, requested=2)]) == {9: 1}
    slow = waiting(9, "1-2", 2500.0, requested=1, speedup=Amdahl(0.5))
    assert walk(backfill, [head, slow]) == {9: 2}


def test_nobody_starts_twice_or_on_nothing() -> None:
    for backfill in WALKS:
        assert walk(backfill, []) == {}
        assert walk(backfill, [waiting(5, "1", 0.0)], (running(1, 0, 8),)) == {}
        queue = [waiting(n, "3", 0.0) for n in (5, 6, 7)]
        assert walk(backfill, queue, ()) == {5: 3, 6: 3}


def test_sizes_that_are_wanted() -> None:
    assert preferred(waiting(1, "2-8")) == 8
    assert preferred(waiting(1, "2-8", prefer=4)) == 4
    assert smallest(waiting(1, "2-8", prefer=4)) == 2
