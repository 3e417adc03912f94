from __future__ import annotations

import pytest

from pliant.client.cluster.remote.node_start_message import (
    NodeStartMessage,
    NodeStartMessageError,
    decode_start_messages,
    encode_start_messages,
)
from pliant.client.cluster.remote.remote_cluster import host_of, listen_address


def test_messages_come_back_from_their_line() -> None:
    messages = [NodeStartMessage("n1", "abc", "secret", "10.0.0.1:7", ("--slots", "2"), "/scratch")]
    assert decode_start_messages(encode_start_messages(messages)) == messages
    assert messages[0].folder.startswith("/scratch/pliant-")
    assert messages[0].folder.endswith("-abc-n1")


@pytest.mark.parametrize("line", [b"", b"{}x", b'[{"name": "n1"}]', b'[{"new": 1}]'])
def test_a_line_of_another_version(line: bytes) -> None:
    with pytest.raises(NodeStartMessageError, match="same version"):
        decode_start_messages(line)


@pytest.mark.parametrize(
    ("chosen", "own", "expected"),
    [
        ("", {"10.0.0.1"}, "10.0.0.1:0"),
        ("", {"10.0.0.1", "10.1.0.1"}, "0.0.0.0:0"),
        ("gate.site:7000", {"10.0.0.1"}, "10.0.0.1:7000"),
        ("gate.site", {"10.0.0.1"}, "10.0.0.1:0"),
        ("[fe80::1]:70", {"fe80::1"}, "[fe80::1]:70"),
    ],
)
def test_where_the_server_listens(chosen: str, own: set[str], expected: str) -> None:
    assert listen_address(chosen, own) == expected


def test_hosts_of_addresses() -> None:
    assert [host_of(text) for text in ("", "a", "a:7", "[::1]:7", "[::1]")] == [
        *("", "a", "a", "::1", "::1")
    ]
