"""The user's word about nodes that are cut off, and how long a lost node's processes may live."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.support.input_limits import MAX_DURATION_S
from pliant.core.values.lost_contact_policy import (
    CLOCK_DRIFT,
    grace_s,
    isolation_policy,
    parse_isolation_policy,
    wait_s,
)

SECONDS = st.floats(0.0, 1e6)
DRIFT = st.floats(1 - CLOCK_DRIFT / 2, 1 + CLOCK_DRIFT / 2)


@pytest.mark.parametrize(
    ("text", "seconds"), [("keep", None), ("stop-after=0", 0.0), ("stop-after=2.5", 2.5)]
)
def test_a_policy_is_read_and_written(text: str, seconds: float | None) -> None:
    assert parse_isolation_policy(text) == seconds
    assert isolation_policy(seconds) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "KEEP",
        "stop-after",
        "stop-after=",
        "stop-after=-1",
        "stop-after=nan",
        "stop-after=inf",
        "stop-after=30s",
        "stop-after= 3",
        "stop-after=1_0",
        f"stop-after={2 * MAX_DURATION_S}",
    ],
)
def test_a_policy_that_is_none_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="write keep, or stop-after=SECONDS"):
        parse_isolation_policy(text)


@given(st.floats(0.0, MAX_DURATION_S))
def test_what_is_written_is_read_again(seconds: float) -> None:
    assert parse_isolation_policy(isolation_policy(seconds)) == pytest.approx(seconds, rel=1e-14)


@given(
    stop_after=SECONDS,
    lease=SECONDS,
    grace=SECONDS,
    later_lease=SECONDS,
    travelled=SECONDS,
    late=SECONDS,
    node=DRIFT,
    server=DRIFT,
)
def test_a_wait_outlasts_the_processes_whatever_the_clocks_and_the_network_do(
    *,
    stop_after: float,
    lease: float,
    grace: float,
    later_lease: float,
    travelled: float,
    late: float,
    node: float,
    server: float,
) -> None:
    """In true time from the moment on at which the node sent its last word that arrived.

    The lease may be another one since the processes were started: the server restarted.
    """
    outlives = grace_s(stop_after, lease, grace)
    killed = outlives / node
    lost = travelled + later_lease / server + late
    started = lost + wait_s(outlives, later_lease) / server
    assert killed <= started


def test_who_keeps_its_processes_waits_for_nobody() -> None:
    assert grace_s(None, 60.0, 5.0) == 0.0
