"""Where ranks listen."""

from __future__ import annotations

import ipaddress
import sys
from pathlib import Path

import pytest

from nodekit import FakeServer, World

LISTENERS = """
import psutil
from mpi4py import MPI

MPI.COMM_WORLD.Barrier()
for connection in psutil.Process().net_connections("inet"):
    if connection.status == psutil.CONN_LISTEN:
        print(connection.laddr.ip, flush=True)
"""


@pytest.mark.mpi
@pytest.mark.usefixtures("node")
def test_ranks_listen_on_the_interface_of_the_cluster_only(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FI_PROVIDER")  # of the test run; what counts is the controller's default
    world = World(
        [sys.executable, "-c", LISTENERS],
        tmp_path / "out",
        placement={"n1": [0, 1]},
        environment={"FI_TCP_IFACE": "lo"},
    )
    world.start(server)
    assert [end.code for end in world.ends(server)] == [0, 0]
    found = (tmp_path / "out").read_text().split()
    assert found
    assert all(ipaddress.ip_address(address).is_loopback for address in found)
