from __future__ import annotations

import os
from pathlib import Path

import pytest

from pliant.nodectl.certified.joined_node import JoinedNode, interface_of
from pliant.nodectl.certified.server_address_for_applications import application_address
from pliant.nodectl.settings import ControllerSettings, ControllerSettingsError, load
from pliant.protos.address import local_address
from tlskit import Membership


@pytest.mark.parametrize("slots", [None, 1])
def test_the_settings_of_a_node_follow_from_its_identity(tmp_path: Path, slots: int | None) -> None:
    directory = Membership(tmp_path / "server").join(
        tmp_path / "node", "n7", ["127.0.0.1:7000"], slots
    )
    node = JoinedNode(directory)
    settings = load(None, {}, node.defaults())
    node.check(settings)
    assert settings.name == "n7"
    assert settings.slots == (slots or len(os.sched_getaffinity(0)))
    assert (settings.address, settings.interface) == ("127.0.0.1", "lo")
    file = tmp_path / "node.yaml"
    file.write_text("address: 10.0.0.1\nslots: 3\n")
    chosen = load(str(file), {"slots": 5}, node.defaults())
    assert (chosen.name, chosen.address, chosen.slots) == ("n7", "10.0.0.1", 5)
    with pytest.raises(ControllerSettingsError, match="joined as node n7"):
        node.check(ControllerSettings(name="n8"))


def test_the_first_server_with_a_route_decides_about_the_address() -> None:
    assert local_address(["no-such-host.invalid:1", "127.0.0.1:1"]) == "127.0.0.1"
    assert local_address([]) == ""
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("203.0.113.9") == ""


@pytest.mark.parametrize(
    ("told", "server", "expected"),
    [
        (":7001", "10.0.0.1:7000", "10.0.0.1:7001"),
        (":7001", "[fe80::1]:7000", "[fe80::1]:7001"),
        ("10.0.0.2:9", "10.0.0.1:7000", "10.0.0.2:9"),
    ],
)
def test_where_applications_connect(told: str, server: str, expected: str) -> None:
    assert application_address(told, server) == expected


@pytest.mark.parametrize("told", ["", ":", ":x"])
def test_a_server_that_names_no_port(told: str) -> None:
    with pytest.raises(ValueError, match="expected the port"):
        application_address(told, "10.0.0.1:7000")
