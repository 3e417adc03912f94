"""What a shim of a user may claim, and what the server signs of a start."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from pliant.nodectl.certified.server_address_for_applications import ApplicationAccess
from pliant.nodectl.controller.start_order import make_environment, make_request
from pliant.nodectl.controller.users.helper_client import encode_content
from pliant.nodectl.controller.users.user_worlds import clean_message
from pliant.nodectl.controller.world_state import LocalWorld
from pliant.nodectl.root_helper.request_verification import content_of
from pliant.nodectl.settings import ControllerSettings
from pliant.nodectl.world_folder import SpooledExit, StartRequest, WorldFolder
from pliant.protos import node_pb2 as wire
from pliant.protos.signed_orders.launch_content import NODE_VARIABLES, LaunchContent

ACCESS = ApplicationAccess("127.0.0.1:7", b"roots")


@pytest.fixture
def world(tmp_path: Path) -> LocalWorld:
    request = StartRequest(
        world="7.1.0", job=7, run=1, resize=0, type="mpi", size=3, ranks=[(0, 4), (2, 5)],
        argv=["x"], environment={}, directory="/", stdout="", uid=5001, by_helper=True,
    )  # fmt: skip
    return LocalWorld(request, WorldFolder(tmp_path))


def exit_record(**changes: Any) -> dict[str, Any]:
    return {**SpooledExit(0, 4, 3, 0, "why", time.time()).to_record(), **changes}


def test_a_right_claim_is_kept(world: LocalWorld) -> None:
    sent = {"op": "exits", "exits": [exit_record(), exit_record(rank=2, code=0)]}
    clean = clean_message(world, sent, 99)
    assert [(end["rank"], end["processor"], end["code"]) for end in clean["exits"]] == [
        (0, 4, 3),
        (2, 5, 0),
    ]


@pytest.mark.parametrize(
    "changes",
    [{"rank": 1}, {"rank": -1}, {"rank": "0"}, {"rank": True}, {"code": 1 << 40}, {"code": "0"},
     {"signal": -1}, {"signal": 1.5}],
    ids=str,
)  # fmt: skip
def test_wrong_claims_are_refused(world: LocalWorld, changes: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        clean_message(world, {"op": "exits", "exits": [exit_record(**changes)]}, 99)


def test_a_shim_cannot_blame_the_node_or_another_world(world: LocalWorld) -> None:
    claim = exit_record(
        node_fault=True, cut_off=True, processor=77, at=math.inf, reason="\udcff" * 9000
    )
    (end,) = clean_message(world, {"op": "exits", "exits": [claim]}, 99)["exits"]
    assert not end["node_fault"]
    assert not end["cut_off"]
    assert end["processor"] == 4
    assert end["at"] <= time.time()
    assert len(end["reason"]) < 9000
    sent = {"op": "hello", "world": "8.1.0", "pid": 1, "ready": 1, "fence": None, "exits": []}
    hello = clean_message(world, sent, 99)
    assert (hello["world"], hello["pid"], hello["ready"]) == ("7.1.0", 99, False)


@pytest.mark.parametrize(
    "sent",
    [
        {"op": "kill"},
        {"op": "exits", "exits": {}},
        {"op": "exits", "exits": [exit_record()] * 3},
        {"op": "exits"},
        {"op": "fence", "sequence": 1, "pairs": {"a": 3}},
        {"op": "fence", "sequence": -1, "pairs": {}},
        {"op": "fence", "sequence": 1, "pairs": []},
        {"op": "hello", "world": "7.1.0"},
    ],
    ids=range(8),
)
def test_other_messages_are_refused(world: LocalWorld, sent: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        clean_message(world, sent, 99)


def order(**changes: Any) -> wire.StartWorld:
    made = wire.StartWorld(
        world="7.1.0", job=7, run=1, epoch=1, type="mpi", world_size=2,
        argv=[b"program", b"\xff"], environment=[b"A=1", b"PMI_RANK=3", b"=x", b"FI_TCP_IFACE=lo"],
        directory=b"/tmp", stdout=b"out", umask=0o27, token=b"token", node_list=b"host:2\n",
        checkpoint=b"/ckpt", checkpoint_key=b"key", truncate_before=math.inf,
    )  # fmt: skip
    made.ranks.add(rank=0, processor=4)
    made.ranks.add(rank=1, processor=5)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("settings", "own", "expected"),
    [
        (ControllerSettings(transport="ucx", interface="e7"), b"X=1", "devices of e7"),
        (ControllerSettings(transport="ucx", interface="e7"), b"UCX_NET_DEVICES=mine", "mine"),
        (ControllerSettings(transport="ucx", interface="e7"), b"FI_TCP_IFACE=e8", "devices of e8"),
        (ControllerSettings(transport="ucx", interface="lo"), b"X=1", None),
        (ControllerSettings(transport="ofi", interface="e7"), b"X=1", None),
    ],
    ids=["ucx", "of the job", "interface of the job", "loopback", "ofi"],
)
def test_ucx_uses_the_interface_of_the_node(
    settings: ControllerSettings,
    own: bytes,
    expected: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def devices(interface: str) -> str:
        return "" if interface == "lo" else f"devices of {interface}"

    monkeypatch.setattr("pliant.nodectl.controller.start_order.ucx_devices", devices)
    made = order()
    del made.environment[:]
    made.environment.append(own)
    assert make_environment(made, settings, tmp_path).get("UCX_NET_DEVICES") == expected


@pytest.mark.parametrize("kind", ["mpi", "script", "uni"])
@pytest.mark.parametrize("access", [None, ACCESS])
def test_server_and_node_compute_the_same_digest(kind: str, access: Any, tmp_path: Path) -> None:
    made = order(type=kind)
    request = make_request(made, ControllerSettings(), tmp_path, "boot", access)
    content = encode_content(request, b"token", b"host:2\n", b"key", ("a", b"b"))
    signed = LaunchContent.from_order(made)
    assert content_of(json.loads(content)).digest() == signed.digest()


@pytest.mark.parametrize(
    "changes",
    [{"world": "7.1.1"}, {"type": "uni"}, {"directory": b"/"}, {"stdout": b"x"}, {"umask": 0},
     {"checkpoint": b"/x"}, {"truncate_before": 0.0}, {"token": b"x"}, {"node_list": b"x"},
     {"checkpoint_key": b"x"}, {"resize": 2}, {"world_size": 3}, {"stdin": b"x"},
     {"stderr": b"x"}],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_each_field_changes_the_digest(changes: dict[str, Any]) -> None:
    digests = {LaunchContent.from_order(each).digest() for each in (order(), order(**changes))}
    assert len(digests) == 2


@pytest.mark.parametrize("kind", ["mpi", "script"])
def test_nodes_set_only_variables_that_are_listed(kind: str, tmp_path: Path) -> None:
    made = order(type=kind)
    del made.environment[:]
    assert make_environment(made, ControllerSettings(), tmp_path).keys() <= NODE_VARIABLES
    request = make_request(made, ControllerSettings(), tmp_path, "boot", ACCESS)
    assert request.environment.keys() <= NODE_VARIABLES
