"""Speedup models: values, joints, the grammar."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.core.values.speedup import (
    LINEAR,
    Amdahl,
    Downey,
    Flat,
    Speedup,
    SpeedupError,
    Table,
    corrected,
    parse_speedup,
    speedup_of,
)

MODELS: st.SearchStrategy[Speedup] = st.one_of(
    st.just(LINEAR),
    st.just(Flat()),
    st.builds(Amdahl, st.floats(0, 1)),
    st.builds(Downey, st.floats(1, 500), st.floats(0, 4)),
    st.builds(
        lambda steps: Table(
            ((1, 1.0), *((2 * place, 1.0 + 0.5 * place) for place in range(1, steps)))
        ),
        st.integers(1, 20),
    ),
)


@given(MODELS)
def test_one_processor_is_the_unit_and_more_are_never_slower(model: Speedup) -> None:
    values = [model(size) for size in range(1, 300)]
    assert values[0] == pytest.approx(1.0)
    assert all(after >= before * (1 - 1e-12) for before, after in itertools.pairwise(values))


@given(MODELS)
def test_a_model_survives_being_written_down(model: Speedup) -> None:
    assert parse_speedup(str(model)) == model


def test_table_is_linear_between_its_points_and_constant_beyond() -> None:
    table = parse_speedup("table:1=1,3=2,8=4")
    assert [table(size) for size in (1, 2, 3, 8, 9, 1000)] == [1.0, 1.5, 2.0, 4.0, 4.0, 4.0]


@pytest.mark.parametrize("average", [1.0, 5.0, 64.5])
@pytest.mark.parametrize("sigma", [0.0, 0.5, 1.0, 2.0])
def test_downey_is_bounded_by_the_average_parallelism(average: float, sigma: float) -> None:
    model = Downey(average, sigma)
    assert model(100_000) == pytest.approx(average)
    if sigma == 0:
        assert model(3) == pytest.approx(min(3.0, average))


def test_downey_known_value() -> None:
    # sigma = 1, n <= A: A n / (A + (n - 1) / 2)
    assert Downey(10, 1)(5) == pytest.approx(50 / 12)


@pytest.mark.parametrize(
    "text",
    ["", "quick", "linear:2", "amdahl:1.5", "amdahl:x", "downey:3", "downey:0.5,1", "downey:5,-1",
     "none:1", "amdahl:inf", "downey:inf,1", "downey:2,inf", "table:1=1,2=inf", "table:1=1,2=nan",
     "table:", "table:2=2", "table:1=1,1=2", "table:1=1,4=3,2=2", "table:1=1,2=-1", "amdahl:nan"],
)  # fmt: skip
def test_what_is_not_a_model_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(SpeedupError, match="speedup"):
        parse_speedup(text)


def test_none_gains_nothing() -> None:
    assert [parse_speedup("none")(size) for size in (1, 2, 1000)] == [1.0] * 3


@given(MODELS, st.dictionaries(st.integers(1, 64), st.floats(0.01, 100.0), min_size=2, max_size=6))
def test_a_corrected_model_runs_as_fast_as_measured(
    model: Speedup, seconds: dict[int, float]
) -> None:
    speedup = corrected(model, seconds)
    assert speedup(1) == pytest.approx(1.0)
    first = min(seconds)
    for size, taken in seconds.items():
        assert speedup(size) / speedup(first) == pytest.approx(seconds[first] / taken)


def test_one_measured_size_says_nothing_of_others() -> None:
    assert corrected(LINEAR, {4: 2.0}) is LINEAR
    assert corrected(LINEAR, {}) is LINEAR
    # Beyond what was measured the stated model goes on from there.
    speedup = corrected(LINEAR, {4: 1.0, 8: 1.0})
    assert speedup(16) / speedup(8) == pytest.approx(2.0)


def test_measured_speedup_is_linear_up_to_the_least_and_as_far_again_beyond() -> None:
    table = speedup_of({4: 1.0, 2: 1.5})
    assert [table(size) for size in (1, 2, 4, 6, 8, 100)] == [1.0, 2.0, 3.0, 4.5, 6.0, 6.0]
    assert speedup_of({1: 0.5}) == Table(((1, 1.0), (2, 2.0)))
    slower = speedup_of({1: 1.0, 2: 2.0})
    assert [slower(size) for size in (1, 2, 4, 8)] == [1.0, 0.5, 1.0, 1.0]
