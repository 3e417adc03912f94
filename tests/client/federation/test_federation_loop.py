"""Which nodes of the grid server a federation takes for its own."""

from __future__ import annotations

import pytest

from pliant.client.federation import federation_loop


@pytest.mark.parametrize(
    ("name", "cluster", "is_stub"),
    [
        ("lab-3", "lab", True),
        ("lab-3", "", False),
        ("other-3", "other", False),
        ("lab", "lab", False),
    ],
)
def test_a_node_with_the_name_of_a_stub_alone_is_none(
    name: str, cluster: str, *, is_stub: bool
) -> None:
    assert federation_loop.is_stub({"name": name, "cluster": cluster}, {"lab"}) is is_stub
