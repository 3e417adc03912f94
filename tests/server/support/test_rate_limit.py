from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pliant.server.support.rate_limit import RateLimiter


@given(
    rate=st.floats(1, 100),
    most=st.floats(1, 50),
    waits=st.lists(st.floats(0, 10), max_size=100),
)
def test_never_more_than_the_rate_and_what_may_be_said_at_once(
    rate: float, most: float, waits: list[float]
) -> None:
    rate_limiter, now, taken = RateLimiter(rate, most), 0.0, 0
    for wait in waits:
        now += wait
        taken += rate_limiter.exceeded(1, 1, now) == ""
    assert taken <= most + rate * now + 1e-6


def test_who_keeps_to_the_rate_is_never_stopped() -> None:
    rate_limiter = RateLimiter(10.0, 1.0)
    assert [rate_limiter.exceeded(1, 1, step / 8) for step in range(50)] == [""] * 50


def test_each_run_of_a_job_has_its_own_until_the_job_ends() -> None:
    rate_limiter = RateLimiter(1.0, 2.0)
    assert [rate_limiter.exceeded(7, 1, 0.0) for _ in range(3)] == [
        "",
        "",
        "job 7 exceeded its rate limit: more than 1 messages a second, 2 at once",
    ]
    assert rate_limiter.exceeded(7, 2, 0.0) == rate_limiter.exceeded(8, 1, 0.0) == ""
    rate_limiter.forget([7])
    assert rate_limiter.exceeded(7, 1, 0.0) == ""
