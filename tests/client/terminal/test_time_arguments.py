from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.client.terminal.time_arguments import parse_moment

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
        ("now+1hour", 3600),
        ("now+2hours", 7200),
        ("now+3min", 180),
        ("now+1week", 7 * 86400),
        ("now+60", 60),  # Slurm counts seconds
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
        ("4:30pm", 4.5),
        ("11:00 AM", 23),
        ("12:00am", 12),
        ("midnight", 12),
        ("noon", 24),
        ("fika", 3),
        ("teatime", 4),
        ("tomorrow", 12),
        ("tomorrow 16:00", 28),
        ("tomorrow-noon", 24),
        ("todayT13:00", 1),
        ("12/25", 12),
        ("12/24", 365 * 24 - 12),  # this year's has begun already
        ("12/25/26-06:00", 18),
    ],
)
def test_a_moment_by_the_clock(text: str, hours: float) -> None:
    assert parse_moment(text, NOON) == (None, NOON + hours * 3600)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2026-12-23", "has passed"),
        ("today", "has passed"),
        ("0s", "no time"),
        *((text, "write") for text in ("", "now", "-5", "lunch", "25:00", "13:00pm", "2026-02-30")),
        *((text, "write") for text in ("02/30", "tomorrow 25:00", "now+1year")),
    ],
)
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


@pytest.mark.parametrize("text", ["3651d", "9999-12-24", "now+999999999weeks"])
def test_a_moment_that_the_server_would_not_take(text: str) -> None:
    with pytest.raises(ValueError, match="is more than 3650 days from now"):
        parse_moment(text, NOON)
