"""What jobs need of their nodes."""

from __future__ import annotations

import json
import pickle

import pytest

from pliant.core.values.node_needs import (
    GPU,
    MEMORY,
    NodeNeeds,
    memory_text,
    needs_from_record,
    parse_gres,
    parse_memory,
)
from pliant.core.values.node_property_constraint import Constraint

G = 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [("4G", 4 * G), ("1.5g", 3 * G // 2), ("500", 500 << 20), ("64GiB", 64 * G), ("1K", 1024)],
)
def test_amounts_of_memory(text: str, size: int) -> None:
    assert parse_memory(text) == size
    assert parse_memory(memory_text(size).replace(" bytes", "")) == size


@pytest.mark.parametrize("text", ["", "0", "G", "4X", "-1G", "1e3", "4 G B", "99999999999P"])
def test_what_is_no_memory(text: str) -> None:
    with pytest.raises(ValueError, match="memory"):
        parse_memory(text)


def test_generic_resources() -> None:
    assert parse_gres(["gpu:2", "fpga", "nic=1"]) == {"gpu": 2, "fpga": 1, "nic": 1}
    for wrong in (["gpu:0"], ["memory:1"], ["gpu:x"], ["gpu", "gpu:2"], [":1"], ["gpu:99999999"]):
        with pytest.raises(ValueError, match=r"gpu|resource|expected"):
            parse_gres(wrong)


def test_records_and_processes() -> None:
    needs = NodeNeeds(((GPU, 2), (MEMORY, G)), Constraint("fast"), "n[1-3]", "n2")
    assert needs_from_record(json.loads(json.dumps(needs.to_record()))) == needs
    assert pickle.loads(pickle.dumps(needs)) == needs
    assert needs_from_record(None) is None
    assert needs.processes({GPU: 5, MEMORY: 8 * G}) == 2
    assert needs.processes({MEMORY: 8 * G}) == 0
    fast = frozenset({"fast"})
    accepted = [name for name in ("n1", "n2", "n3", "n4") if needs.accepts(name, fast)]
    assert accepted == ["n1", "n3"]
    assert not needs.accepts("n1", frozenset())
    assert (needs.memory, needs.gres) == (G, {GPU: 2})
    assert not NodeNeeds()
