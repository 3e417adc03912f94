"""Loops are counted alike everywhere, and a while-loop has one safe point; no MPI."""

from __future__ import annotations

import pytest

from pliant.appkit.appkit_errors import LoopError
from pliant.appkit.loops import Loops


def test_a_safe_point_that_comes_again_is_of_the_same_loop() -> None:
    loops = Loops()
    assert [loops.at_site("a") for _ in range(3)] == [True, False, False]
    assert (loops.number, loops.iteration) == (1, 2)
    assert loops.at_site("b"), "the next loop"
    assert not loops.at_site("b")
    assert loops.number == 2


def test_two_safe_points_of_a_loop_are_found_out_at_the_first_time_round() -> None:
    loops = Loops()
    assert loops.at_site("a")
    assert loops.at_site("b")
    with pytest.raises(LoopError, match=r"a loop has one job\.safe_point\(\)"):
        loops.at_site("a")


def test_a_steps_loop_is_a_new_beginning() -> None:
    loops = Loops()
    for number in (1, 3):
        assert loops.at_site("a")
        assert loops.number == number
        loops.begin(1)
        loops.end()
