"""Constraints on properties of nodes."""

from __future__ import annotations

import pickle

import pytest

from pliant.core.values.node_property_constraint import Constraint


@pytest.mark.parametrize(
    ("text", "fits", "fits_not"),
    [
        ("fast", ["fast", "fast a100"], ["", "a100", "faster"]),
        ("fast&a100", ["fast a100 x"], ["fast", "a100"]),
        ("a100|h100", ["a100", "h100"], ["", "fast"]),
        ("fast&a100|slow", ["fast a100", "slow"], ["fast", "a100"]),
        ("fast & (a100 | h100)", ["fast h100"], ["a100", "fast"]),
    ],
)
def test_constraints(text: str, fits: list[str], fits_not: list[str]) -> None:
    constraint = Constraint(text)
    assert all(constraint.fits(frozenset(names.split())) for names in fits)
    assert not any(constraint.fits(frozenset(names.split())) for names in fits_not)
    assert pickle.loads(pickle.dumps(constraint)) == constraint  # views go to another process


@pytest.mark.parametrize(
    "text", ["", "&", "a&", "|a", "a b", "a&&b", "(a", "a)", "()", "a!", "-a", "(" * 200, "a" * 300]
)
def test_what_is_no_constraint(text: str) -> None:
    with pytest.raises(ValueError, match="constraint"):
        Constraint(text)
