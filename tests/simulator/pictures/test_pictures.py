"""Pictures of simulations: readable with thousands of jobs, as SVG and PNG, with axis titles."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib", reason="pictures need the extra plots")

from pliant.core.model.lifecycle import JobState
from pliant.simulator.pictures.comparison import comparison
from pliant.simulator.pictures.figure import Format, encoded, format_of, time_unit
from pliant.simulator.pictures.over_time import queue_length, sizes, utilization
from pliant.simulator.run.result import JobRecord, Span

SPANS = [
    Span(1, 0.0, 50.0, (0, 1, 2, 3), False),
    Span(1, 50.0, 100.0, (0, 1), True),
    Span(2, 50.0, 90.0, (2, 3), False),
]


def record(number: int, submit: float, start: float | None, end: float) -> JobRecord:
    return JobRecord(number, submit, start, end, 1, "rigid", JobState.COMPLETED)


def axes_of(figure: Any) -> Any:
    return figure.axes[0]


def texts(svg: bytes) -> str:
    root = ElementTree.fromstring(svg)
    return " | ".join("".join(each.itertext()) for each in root.iter() if each.tag.endswith("text"))


def test_utilization_is_the_share_of_processors_held() -> None:
    figure = utilization(SPANS, 4, "used")
    line = axes_of(figure).lines[0]
    assert list(line.get_xdata()) == [0.0, 50.0, 90.0, 100.0]
    assert list(line.get_ydata()) == [100.0, 100.0, 50.0, 0.0]
    assert "processors in use (%)" in texts(encoded(figure, "svg"))


def test_the_queue_has_jobs_from_submission_to_start() -> None:
    jobs = [record(1, 0, 0, 10), record(2, 1, 10, 20), record(3, 2, None, 5)]
    line = axes_of(queue_length(jobs, "queue")).lines[0]
    assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) == {
        0.0: 0, 1.0: 1, 2.0: 2, 5.0: 1, 10.0: 0,
    }  # fmt: skip


def test_sizes_are_those_of_the_jobs_that_were_resized_most() -> None:
    figure = sizes(SPANS, "sizes")
    assert [line.get_label() for line in axes_of(figure).lines] == [
        "job 1, 1 resizes",
        "job 2, 0 resizes",
    ]
    assert list(axes_of(figure).lines[0].get_ydata()) == [4, 2, 0]


def test_a_comparison_has_a_bar_for_each_strategy_with_its_interval() -> None:
    names = ("utilization", "mean_turnaround_s", "mean_wait_s", "schedule_span_s")
    runs = [[dict.fromkeys(names, value) for value in (1.0, 3.0)] for _ in range(2)]
    figure: Any = comparison(["fcfs", "easy-avg"], runs, "strategies")
    assert [len(axes.patches) for axes in figure.axes] == [2] * 4
    assert all(axes.collections for axes in figure.axes)  # the intervals
    found = texts(encoded(figure, "svg"))
    assert "easy-avg" in found
    assert "mean wait (s)" in found


@pytest.mark.parametrize("figure", [utilization([], 4, "-"),
                                    queue_length([], "-"), sizes([], "-")])  # fmt: skip
def test_an_empty_simulation_has_pictures(figure: Any) -> None:
    assert encoded(figure, "svg").startswith(b"<?xml")


def test_the_same_picture_is_the_same_file() -> None:
    formats: dict[Format, bytes] = {"svg": b"<?xml", "png": b"\x89PNG"}
    for kind, begin in formats.items():
        first = encoded(utilization(SPANS, 4, "-"), kind)
        assert first.startswith(begin)
        assert first == encoded(utilization(SPANS, 4, "-"), kind)


@pytest.mark.parametrize(
    ("path", "kind"), [("a.svg", "svg"), ("a.PNG", "png"), ("a", "svg"), ("/dev/stdout", "svg")]
)
def test_the_name_of_a_file_says_its_format(path: str, kind: str) -> None:
    assert format_of(path) == kind


@pytest.mark.parametrize(
    ("seconds", "unit"), [(1, "s"), (119, "s"), (120, "min"), (7200, "h"), (200_000, "days")]
)
def test_time_axes_have_a_suitable_unit(seconds: float, unit: str) -> None:
    assert time_unit(seconds)[1] == unit
