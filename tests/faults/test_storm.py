"""Daemons that are killed at random while users submit: nothing is lost, nothing is done twice.

``PLIANT_KILLS=200`` is the long form, ``PLIANT_TEST_SEED`` another order of things.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterkit.cluster import Cluster
from faultkit.storm import Storm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("PLIANT_KILLS", "6"))
SEED = int(os.environ.get("PLIANT_TEST_SEED", "1"))


@pytest.mark.case(11)
def test_what_was_acknowledged_runs_once_whatever_is_killed(
    state_dir: Path, tmp_path: Path
) -> None:
    cluster = Cluster(state_dir.parent, nodes=3, slots=2, strategy="fcfs+easy")
    cluster.up()
    try:
        storm = Storm(cluster, tmp_path, SEED)
        storm.blow(KILLS)
        ended = storm.settle()
    finally:
        cluster.down()
    print(f"{KILLS} kills, {len(storm.acknowledged)} jobs acknowledged, {dict(ended)}")
    assert len(storm.acknowledged) > KILLS
