from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.client.terminal.durations import (
    format_bytes,
    format_duration,
    format_time,
    parse_duration,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30", 1800),
        ("90", 5400),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("1d", 86400),
        ("05:30", 330),
        ("01:00:00", 3600),
        ("100:00:01", 360001),
        ("1-02:00:00", 93600),
        ("2-0", 172800),
        (" 10M ", 600),
    ],
)
def test_each_form_of_a_duration_is_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.case(55)
@pytest.mark.parametrize(
    "text",
    ["", "0", "0s", "-5", "1x", "s", "1:2:3:4", "10:60", "1:60:00", "inf", "nan", "1e3", "٣"],
)
def test_what_is_no_span(text: str) -> None:
    with pytest.raises(ValueError, match="write 90s"):
        parse_duration(text)


def test_a_span_that_the_server_would_not_take() -> None:
    with pytest.raises(ValueError, match=r"'99999999999999d' is longer than 3650 days"):
        parse_duration("99999999999999d")
    assert parse_duration("3650d") == 3650 * 86400


@given(
    days=st.integers(0, 99),
    hours=st.integers(0, 23),
    minutes=st.integers(0, 59),
    seconds=st.integers(1, 59),
)
def test_clocks_and_units_agree(days: int, hours: int, minutes: int, seconds: int) -> None:
    total = days * 86400 + hours * 3600 + minutes * 60 + seconds
    assert parse_duration(f"{days}-{hours:02}:{minutes:02}:{seconds:02}") == total
    assert parse_duration(f"{days * 24 + hours}:{minutes:02}:{seconds:02}") == total
    assert parse_duration(f"{days}d{hours}h{minutes}m{seconds}s") == total


@given(st.text())
def test_any_text_is_a_positive_span_or_a_value_error(text: str) -> None:
    try:
        assert parse_duration(text) > 0
    except ValueError:
        pass


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0.0s"),
        (3.21, "3.2s"),
        (9.97, "10s"),
        (59.7, "1m00s"),
        (245, "4m05s"),
        (7800, "2h10m"),
        (273600, "3d04h"),
        (-5, "-5.0s"),
    ],
)
def test_spans_for_people(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


def test_times_for_people() -> None:
    assert format_time(None) == "-"
    assert len(format_time(1e9, 1e9 + 1)) == len("00:00:00")
    assert format_time(1e9, 2e9).startswith("2001-09-")


@pytest.mark.parametrize(
    ("count", "text"), [(None, "-"), (512, "512 B"), (1536, "1.5 KiB"), (3 << 30, "3 GiB")]
)
def test_sizes_for_people(count: int | None, text: str) -> None:
    assert format_bytes(count) == text
