"""Lists of node names with ranges."""

from __future__ import annotations

import pytest

from pliant.core.values.node_ranges import MAX_NAMES, parse_node_ranges


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ("n1",)),
        ("n1,m2,n1", ("n1", "m2")),
        ("n[08-10]", ("n08", "n09", "n10")),
        ("n[1,3-4],gpu[2]", ("n1", "n3", "n4", "gpu2")),
        ("r[1-2]n[0-1]", ("r1n0", "r1n1", "r2n0", "r2n1")),
        ("rack1.n[1-2].site", ("rack1.n1.site", "rack1.n2.site")),
    ],
)
def test_lists_of_nodes(text: str, names: tuple[str, ...]) -> None:
    assert parse_node_ranges(text) == names


@pytest.mark.parametrize(
    "text",
    ["", ",", "n1,", ",n1", "n1,,n2", "n[", "n]", "n[]", "n[1-", "n[a-b]", "n[3-1]", "n 1", "-n",
     "n[1-70000]", "a[1-300]b[1-300]", "n[[1]]", "n[1]]", "../x"],
)  # fmt: skip
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(ValueError, match=r"node|backwards|range"):
        parse_node_ranges(text)


def test_the_largest_list() -> None:
    assert len(parse_node_ranges(f"n[1-{MAX_NAMES}]")) == MAX_NAMES
