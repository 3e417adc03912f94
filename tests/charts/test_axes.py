from __future__ import annotations

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from pliant.charts.axes import clock_axis, elapsed_axis, nice_step
from pliant.charts.layout import Window


@pytest.mark.parametrize("span", [1e-3, 0.3, 7.0, 59.0, 240.0, 1e4, 1e6, 1e9])
@pytest.mark.parametrize("start", [0.0, 1.7e9])
def test_an_axis_has_a_few_ticks_inside_the_window(start: float, span: float) -> None:
    window = Window(start, start + span, start + span)
    for axis in (elapsed_axis(window, 8), clock_axis(window, 8, UTC)):
        assert len(axis.ticks) <= 17
        assert all(start - 1e-6 <= time <= start + span * 1.001 for time, _ in axis.ticks)
    assert len(elapsed_axis(window, 8).ticks) >= 3


def test_elapsed_time_is_counted_from_the_origin() -> None:
    day = 86400.0
    axis = elapsed_axis(Window(14 * day, 16 * day, 16 * day), 4, origin=0.0)
    assert [words for _, words in axis.ticks] == ["14", "14.5", "15", "15.5", "16"]
    assert "days" in axis.title


def test_clock_ticks_are_round_in_local_time_across_a_clock_change() -> None:
    zone = ZoneInfo("Europe/Berlin")
    start = 1_792_875_600.0  # 2026-10-25 at 00:00 there, when clocks go back
    axis = clock_axis(Window(start, start + 86400, start + 86400), 8, zone)
    assert all(words.endswith(":00") or words.startswith("Oct") for _, words in axis.ticks)


@pytest.mark.parametrize(("value", "step"), [(0.2, 1), (1.6, 2), (21.4, 25), (26, 50), (2.1, 5)])
def test_steps_of_amounts_are_whole_numbers(value: float, step: float) -> None:
    assert nice_step(value) == step
