"""Lists of nodes on command lines."""

from __future__ import annotations

import pytest

from pliant.client.client_errors import UsageError
from pliant.client.terminal.node_names import node_names


def test_names_and_lists() -> None:
    assert node_names(["m", "n[1-2],m", "n2"]) == ["m", "n1", "n2"]
    with pytest.raises(UsageError, match="not a list of nodes"):
        node_names(["n[1-"])
