"""The order of names with numbers."""

from pliant.core.support.natural_order import natural_order


def test_numbers_count_by_their_values() -> None:
    names = ["n10", "n2", "gap-100, adaptive", "gap-45, adaptive", "6.10", "6.9", "n"]
    expected = ["6.9", "6.10", "gap-45, adaptive", "gap-100, adaptive", "n", "n2", "n10"]
    assert sorted(names, key=natural_order) == expected
