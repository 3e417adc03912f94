from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.server.execution.start_orders import process_mapping


@pytest.mark.parametrize(
    ("nodes", "mapping"),
    [
        ("a", "(vector,(0,1,1))"),
        ("aabb", "(vector,(0,2,2))"),
        ("aaab", "(vector,(0,1,3),(1,1,1))"),
        ("abab", "(vector,(0,2,1),(0,2,1))"),
        ("babb", "(vector,(0,2,1),(0,1,2))"),
        ("aabbcd", "(vector,(0,2,2),(2,2,1))"),
    ],
)
def test_process_mapping(nodes: str, mapping: str) -> None:
    assert process_mapping(nodes) == mapping


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=30))
def test_process_mapping_says_where_each_rank_is(nodes: list[str]) -> None:
    numbers: dict[str, int] = {}
    expected = [numbers.setdefault(node, len(numbers)) for node in nodes]
    inner = process_mapping(nodes).removeprefix("(vector,(").removesuffix("))")
    found: list[int] = []
    for block in inner.split("),("):
        first, count, ranks = map(int, block.split(","))
        found += [node for node in range(first, first + count) for _ in range(ranks)]
    assert found == expected
