"""The settings of time-shared nodes: what is refused, and how."""

from __future__ import annotations

from typing import Any

import pytest

from pliant.simulator.inputs.simulation_errors import SettingsError
from pliant.simulator.time_shared.settings import MB, TimeSharedSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nodes", 0),
        ("slots", 0),
        ("memory_mb", 0.0),
        ("user_share", 1.5),
        ("faults", -1.0),
        ("ramp", 2.0),
        ("load_period_s", 0.0),
        ("more_nodes", "8y768"),
        ("more_nodes", "2x0"),
    ],
)
def test_wrong_values_are_named(name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=name):
        TimeSharedSettings(**{name: value})


def test_a_fault_threshold_that_no_disk_reaches_is_refused() -> None:
    with pytest.raises(SettingsError, match="100 faults/s"):
        TimeSharedSettings(options={"fault-threshold": "100"})
    TimeSharedSettings(options={"fault-threshold": "99"})


def test_nodes_may_have_different_memory() -> None:
    settings = TimeSharedSettings(nodes=2, memory_mb=100, user_share=0.5, more_nodes="1x300, 2x400")
    assert settings.memories() == [50 * MB, 50 * MB, 150 * MB, 200 * MB, 200 * MB]
