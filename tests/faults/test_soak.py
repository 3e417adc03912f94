"""Case 66: a cluster that is used and hurt at random for a long time stays as it must be.

``make soak`` is the long form; ``PLIANT_SOAK_S`` says how long, ``PLIANT_SOAK_TURN_S`` how long
between two rests at which all is looked at, ``PLIANT_TEST_SEED`` another order of things.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterkit.cluster import Cluster
from faultkit.soak import SETTINGS, Soak

LAST_S = float(os.environ.get("PLIANT_SOAK_S", "12"))
TURN_S = float(os.environ.get("PLIANT_SOAK_TURN_S", "6"))
SEED = int(os.environ.get("PLIANT_TEST_SEED", "1"))

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.mpi,
    pytest.mark.timeout(1800 + 2 * LAST_S),
]


@pytest.mark.case(66)
def test_a_long_time_of_everything(state_dir: Path, tmp_path: Path) -> None:
    settings = state_dir.parent / "server.yaml"
    settings.write_text(SETTINGS)
    cluster = Cluster(state_dir.parent, nodes=3, slots=2, strategy="equipartition")
    cluster.shape += ["--config", str(settings)]
    print(f"\nsoak of {LAST_S:g} s, PLIANT_TEST_SEED={SEED}", flush=True)
    cluster.up()
    soak = Soak(cluster, tmp_path, SEED)
    try:
        soak.last(LAST_S, TURN_S)
    finally:
        print(soak.summary(), flush=True)
        cluster.down()
