"""Settings that make no sense are named."""

from __future__ import annotations

from typing import Any

import pytest

from pliant.simulator import Cluster, SettingsError
from pliant.simulator.multicluster.settings import (
    Latencies,
    LocalJob,
    LocalUsers,
    MulticlusterSettings,
    Outage,
)

ONE = (Cluster("a", 4),)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"clusters": ()}, "clusters"),
        ({"clusters": (*ONE, *ONE)}, "clusters"),
        ({"clusters": (Cluster("a", 0),)}, "a needs at least 1 processor"),
        ({"poll_s": -1.0}, "poll_s"),
        ({"snapshot_s": float("inf")}, "snapshot_s"),
        ({"latencies": Latencies(release_s=-1)}, "release_s"),
        ({"latencies": Latencies(spread=2)}, "spread"),
        ({"local_users": LocalUsers(load=1.0)}, "local_users"),
        ({"local_jobs": (("z", (LocalJob(0, 1, 1),)),)}, "no cluster 'z'; there are: a"),
        ({"outages": (Outage("z", 0, 1),)}, "no cluster 'z'"),
        ({"outages": (Outage("a", 5, 5),)}, "outages"),
    ],
)
def test_the_message_names_the_field(given: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        MulticlusterSettings(**{"clusters": ONE, **given})
