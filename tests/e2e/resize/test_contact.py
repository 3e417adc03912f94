"""Old processes and joining ranks never open a connection to each other from both sides at once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from clusterkit.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.mpi]

APP = Path(__file__).parents[1] / "apps" / "greeting.py"
#: Where libfabric's tcp provider says what it does about connections.
LOG = {"FI_LOG_LEVEL": "info", "FI_LOG_PROV": "tcp", "FI_LOG_SUBSYS": "ep_ctrl"}


def test_worlds_meet_one_side_first(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in LOG.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MPIR_CVAR_NOLOCAL", "0")
    output, stop = tmp_path / "out", tmp_path / "stop"
    # Two ranks of one node, then two of another: within a world all talk through shared memory
    # (NOLOCAL=0), so that each connection is one between the two worlds.
    job = cluster.client.submit(
        sys.executable,
        str(APP),
        str(stop),
        sizes="2-4",
        prefer=2,
        chdir=str(tmp_path),
        stdout=str(output),
    )
    cluster.wait_malleable(job)
    for _ in range(4):
        cluster.resize(job, 4)
        cluster.resize(job, 2)
    stop.touch()
    assert cluster.client.wait(job).exit_code == 0
    text = output.read_text(errors="replace")
    assert text.count("FI_CONNREQ") >= 4 * 4
    assert "simultaneous" not in text
