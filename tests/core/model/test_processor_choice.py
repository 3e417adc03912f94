"""Which processors: the small choices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.model.processor_choice import after_resize, first_fit, grow, keep_first
from pliant.core.model.views_and_plans import NodeView
from pliant.core.values.ids import NodeName
from pliant.core.values.processors import block, count, from_indices

NODES = tuple(NodeView(NodeName(f"n{i}"), "default", block(4 * i, 4)) for i in range(4))


def test_first_fit_takes_the_lowest_and_no_fewer() -> None:
    assert first_fit(from_indices([3, 5, 9]), 2) == from_indices([3, 5])
    with pytest.raises(ValueError, match="asked"):
        first_fit(from_indices([3]), 2)


def test_growth_stays_on_the_jobs_own_nodes_first() -> None:
    assert grow((8, 9), from_indices([0, 1, 10, 11]), 2, NODES) == from_indices([10, 11])
    assert grow((8, 9), from_indices([0, 1, 10]), 2, NODES) == from_indices([0, 10])


def test_a_shrink_gives_back_the_last_ranks() -> None:
    assert keep_first((9, 2, 5), 2) == from_indices([9, 2])


def test_survivors_keep_their_order_and_joining_ranks_follow() -> None:
    assert after_resize((9, 2, 5), from_indices([5, 9])) == (9, 5)
    assert after_resize((9, 2), from_indices([0, 1, 2, 9])) == (9, 2, 0, 1)


@given(st.data())
def test_growth_takes_what_is_free_and_no_more(data: st.DataObject) -> None:
    ranks = tuple(data.draw(st.lists(st.integers(0, 15), min_size=1, max_size=8, unique=True)))
    free = from_indices(data.draw(st.sets(st.integers(0, 15)))) & ~from_indices(ranks)
    number = data.draw(st.integers(0, count(free)))
    taken = grow(ranks, free, number, NODES)
    assert count(taken) == number
    assert not taken & ~free
    after = after_resize(ranks, from_indices(ranks) | taken)
    assert after[: len(ranks)] == ranks
    assert from_indices(after) == from_indices(ranks) | taken
