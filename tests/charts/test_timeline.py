"""Pictures of many jobs: readable, small, deterministic."""

from __future__ import annotations

import re
from random import Random
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.charts.history_timeline import Recording, node_rows, with_unknown
from pliant.charts.job_sizes_over_time import Band, Hold, Mark
from pliant.charts.layout import MAX_BANDS, Window
from pliant.charts.output.svg import SvgTheme, to_svg
from pliant.charts.timeline import Timeline, draw_timeline

SVG = "{http://www.w3.org/2000/svg}"


def many(count: int, at_once: int, marks: int = 0) -> Timeline:
    """Return a picture of jobs, of which about so many run at the same time."""
    random, bands = Random(1), []
    for number in range(count):
        start = number * 100.0 / at_once
        length = 100.0 * random.uniform(0.2, 1.8)
        refusals = [Mark(start + 1, "refused")] * (number < marks)
        hold = Hold(start, start + length, 1)
        user = f"u{number % 20}"
        bands.append(
            Band(number, "j", user, number % 10, [hold], refusals, start - 5, start + length)
        )
    end = max(band.holds[0].end or 0.0 for band in bands)
    return Timeline(bands, 128, Window(0, end, end), "many jobs")


def svg(timeline: Timeline, theme: SvgTheme = "auto") -> str:
    text = to_svg(draw_timeline(timeline), theme)
    ElementTree.fromstring(text)
    return text


def words(text: str) -> str:
    root = ElementTree.fromstring(text)
    return " | ".join("".join(each.itertext()) for each in root.iter(f"{SVG}text"))


def test_thousands_of_jobs_give_a_small_file_without_black_borders() -> None:
    text = svg(many(5000, 40))
    assert len(text) < 500_000
    assert "s-ink" not in re.sub(r"<style>.*?</style>", "", text)
    text = svg(many(20_000, 35))
    assert len(text) < 500_000
    assert "short jobs" in words(text)


def test_above_sixty_jobs_at_once_users_are_drawn_and_the_picture_says_so() -> None:
    text = words(svg(many(2000, MAX_BANDS * 2)))
    assert "drawn by user" in text
    assert "11 other users" in text


def test_many_refusals_become_ticks_with_their_number() -> None:
    assert "expired or rolled back (3)" in words(svg(many(200, 10, marks=3)))
    assert "(1,500, ticks below" in words(svg(many(2000, 10, marks=1500)))


def test_an_accepted_resize_has_no_mark() -> None:
    holds = [Hold(0, 50, 4), Hold(50, 100, 2)]
    text = svg(Timeline([Band(1, "a", "u", 0, holds)], 4, Window(0, 100, 100), "-"))
    assert "refused" not in words(text)


def test_lost_processors_are_hatched() -> None:
    window = Window(0, 100, 100)
    text = svg(Timeline([], 8, window, "-", usable=[(0, 8), (50, 4)]))
    assert 'fill="url(#hatch)"' in text
    assert "no job ran" in words(text)
    assert 'fill="url(#hatch)"' not in svg(Timeline([], 8, window, "-", usable=[(0, 8)]))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_fixed_theme_does_not_follow_the_reader(theme: SvgTheme) -> None:
    assert "prefers-color-scheme" not in svg(many(5, 2), theme)
    assert "prefers-color-scheme" in svg(many(5, 2))


def test_the_same_timeline_is_the_same_text() -> None:
    assert svg(many(500, 20)) == svg(many(500, 20))


@given(st.text(), st.text())
def test_any_name_is_valid_xml(name: str, title: str) -> None:
    band = Band(1, name, name, 0, [Hold(0, 10, 8)])
    svg(Timeline([band], 8, Window(0, 10, 10), title))


def test_rows_follow_the_processors_of_the_nodes() -> None:
    nodes = [{"name": "b", "slots": 2, "first": 4}, {"name": "a", "slots": 4, "first": 0}]
    rows = node_rows(nodes)
    assert [(row.name, row.first) for row in rows] == [("a", 0), ("b", 4)]
    assert with_unknown(rows, [3, 9, 10])[-1] == ("?", 9, 2)


def test_a_recording_without_events_has_a_picture() -> None:
    assert "no job ran" in words(svg(Recording().timeline("empty")))
