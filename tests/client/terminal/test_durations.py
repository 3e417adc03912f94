from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.client.terminal.durations import (
    format_bytes,
    format_duration,
    format_time,
    parse_duration,
    parse_moment,
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
    for text in ("3651d", "9999-12-24"):
        with pytest.raises(ValueError, match="is more than 3650 days from now"):
            parse_moment(text, NOON)
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


#: 2026-12-24 12:00:00 by the clock of this machine.
NOON = time.mktime((2026, 12, 24, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30", 1800),
        ("2h", 7200),
        ("+1h30m", 5400),
        ("now+2h", 7200),
        ("NOW+1d", 86400),
    ],
)
def test_a_moment_from_now(text: str, seconds: float) -> None:
    assert parse_moment(text, NOON) == (seconds, None)


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("16:30", 4.5),
        ("16:30:36", 4.51),
        ("12:00", 24),  # tomorrow: today's has just been
        ("2026-12-25", 12),
        ("2026-12-24T18:00", 6),
        ("2026-12-24t18:00:00", 6),
    ],
)
def test_a_moment_by_the_clock(text: str, hours: float) -> None:
    assert parse_moment(text, NOON) == (None, NOON + hours * 3600)


@pytest.mark.parametrize(
    ("text", "says"),
    [("2026-12-23", "has passed"), ("0s", "no time"), ("noon", "write 90s"), ("25:00", "write"),
     ("2026-02-30", "write"), ("", "write"), ("now", "write"), ("-5", "write")],
)  # fmt: skip
def test_what_is_no_moment_to_come(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_moment(text, NOON)


@given(st.text())
def test_any_text_is_a_moment_to_come_or_a_value_error(text: str) -> None:
    try:
        after, at = parse_moment(text, NOON)
    except ValueError:
        return
    assert (after or 0) > 0 or (at or 0) > NOON
