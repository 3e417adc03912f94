"""A rank sees the devices that the server assigned to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from nodekit import FakeServer, World
from pliant.nodectl.shim.ranks import device_variables
from pliant.protos import node_pb2 as wire


@pytest.mark.parametrize(
    ("devices", "variables"),
    [
        ({}, {}),
        ({"fpga": [2]}, {"PLIANT_DEVICES": "fpga=2"}),
        ({"gpu": []}, {"CUDA_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1"}),
        (
            {"gpu": [2, 3], "fpga": []},
            {
                "PLIANT_DEVICES": "gpu=2,3",
                "CUDA_VISIBLE_DEVICES": "2,3",
                "ROCR_VISIBLE_DEVICES": "2,3",
            },
        ),
    ],
)
def test_the_variables_of_devices(
    devices: Mapping[str, Sequence[int]], variables: Mapping[str, str]
) -> None:
    assert device_variables(devices) == variables


@pytest.mark.cluster
@pytest.mark.usefixtures("node")
def test_each_rank_has_its_own_devices(server: FakeServer, tmp_path: Path) -> None:
    world = World(
        ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES > $PLIANT_PROCESSOR"],
        tmp_path / "out",
        type="uni",
        directory=str(tmp_path),
        placement={"n1": [0, 1]},
    )
    (order,) = world.orders().values()
    order.devices.add(kind="gpu", indices=[1, 2, 0, 3])
    server.send("n1", wire.NodeOrder(start_world=order))
    world.ends(server)
    assert [(tmp_path / name).read_text() for name in "01"] == ["1,2\n", "0,3\n"]
