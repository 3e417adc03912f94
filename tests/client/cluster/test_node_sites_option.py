"""The sites of the nodes on this machine."""

from __future__ import annotations

import pytest

from pliant.client.client_errors import UsageError
from pliant.client.cluster.node_sites_option import parse_sites, site_of_each_node


def test_nodes_are_counted_in_order() -> None:
    assert site_of_each_node("delft:2, leiden:1") == ["delft", "delft", "leiden"]
    assert site_of_each_node("") == []


@pytest.mark.parametrize("text", ["delft", "delft:0", ":2", "a:1,,b:1", "a:x", "a b:1", "a:1,a:2"])
def test_sites_of_another_form_are_shown(text: str) -> None:
    with pytest.raises(UsageError, match="--sites"):
        parse_sites(text)
