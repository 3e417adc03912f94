from __future__ import annotations

from random import Random

import pytest

from pliant.charts import layout
from pliant.charts.job_sizes_over_time import Band, Hold
from pliant.charts.layout import Window


def band(number: int, *holds: tuple[float, float | None, float], user: str = "ann") -> Band:
    return Band(number, f"job{number}", user, 0, [Hold(*hold) for hold in holds])


def random_bands(seed: int, count: int) -> list[Band]:
    random = Random(seed)
    return [
        band(number, (start, start + random.choice((0.2, 3, 60)), random.randint(1, 8)))
        for number in range(count)
        for start in [random.uniform(0, 500)]
    ]


def test_a_band_steps_when_the_job_is_resized_and_lies_above_older_ones() -> None:
    bands = [band(1, (0, 50, 4), (50, None, 2)), band(2, (50, None, 2))]
    first, second = layout.stack(bands, Window(0, 100, 100), 0)
    assert [(p.a, p.b, p.bottom, p.height) for p in first] == [(0, 50, 0, 4), (50, 100, 0, 2)]
    assert [(p.a, p.b, p.bottom, p.height) for p in second] == [(50, 100, 2, 2)]


def test_merging_short_jobs_keeps_the_processor_time() -> None:
    window = Window(0, 600, 600)
    bands = layout.bands_between(random_bands(3, 400), window)
    merged = layout.merge_short(bands, window, 4.0)
    assert len(merged) < len(bands)
    assert merged[-1].id is None
    area = layout.mean_use(merged, window)
    assert area == pytest.approx(layout.mean_use(bands, window), rel=0.01)


def test_bands_lie_on_each_other_without_gaps() -> None:
    window = Window(0, 600, 600)
    bands = layout.bands_between(random_bands(5, 100), window)
    pieces = layout.stack(bands, window, 0)
    for moment in range(600):
        time = moment + 0.5
        here = sorted((p.bottom, p.height) for own in pieces for p in own if p.a <= time < p.b)
        base = 0.0
        for lo, n in here:
            assert lo == base
            base += n
        held = sum(h.size for b in bands for h in b.holds if h.start <= time < (h.end or 600))
        assert base == held


def test_users_beyond_the_limit_are_one_area() -> None:
    bands = [band(n, (0, 10, 20 - n), user=f"u{n}") for n in range(15)]
    areas = layout.by_user(bands, Window(0, 10, 10), 10)
    assert len(areas) == layout.MAX_USERS + 1
    assert (areas[0].user, areas[-1].users) == ("u0", 6)
    assert sum(area.levels[5] for area in areas) == sum(20 - n for n in range(15))


def test_waiting_jobs_are_counted_until_they_start() -> None:
    bands = [
        band(1, (10, 20, 4))._replace(submit=4.0),
        band(2)._replace(submit=12.0),
        band(3)._replace(submit=0.0, end=2.0),
    ]
    levels = layout.waiting(bands, Window(0, 30, 30), 30)
    assert [levels[at] for at in (0, 3, 4, 9, 10, 12, 29)] == [1, 0, 1, 1, 0, 1, 1]


def test_marks_do_not_cover_each_other_and_refusals_go_first() -> None:
    places = [(10.0, 10.0, "counter"), (12.0, 12.0, "refused"), (40.0, 10.0, "counter")]
    assert layout.choose_marks(places) == [(12.0, 12.0, "refused"), (40.0, 10.0, "counter")]
    many = [(20.0 * n, 0.0, "counter") for n in range(layout.MAX_MARKS + 1)]
    assert layout.choose_marks(many) is None
