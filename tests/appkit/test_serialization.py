"""Values as bytes without pickle: what comes back, what needs pickle, what is damaged."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from pliant.appkit.serialization import decode, encode

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.binary()
)
KEYS = st.integers() | st.text() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.sets(KEYS, max_size=3)
        | st.frozensets(KEYS, max_size=3)
        | st.binary().map(bytearray)
    ),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Equal, of the same types, and with the same signs of zero."""
    return type(left) is type(right) and repr(left) == repr(right)


def plain(*values: Any) -> list[Any]:
    return decode(encode(values), allow_pickle=False)


@given(VALUES)
def test_plain_values_come_back_without_pickle(value: Any) -> None:
    (again,) = plain(value)
    if isinstance(value, set | frozenset):
        assert again == value
    else:
        assert again == value
        assert type(again) is type(value)


@given(
    hn.arrays(
        dtype=hn.scalar_dtypes() | hn.array_dtypes(subtype_strategy=hn.scalar_dtypes()),
        shape=hn.array_shapes(min_dims=0, min_side=0),
    )
)
def test_arrays_come_back_with_type_and_shape(array: Any) -> None:
    data = encode([array])
    (again,) = decode(data)
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert again.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(20)[::-3],
        np.array([(1, 2.5)], dtype=[("a", ">i4"), ("b", "f8", (1,))]),
        np.array(3.5),
        np.empty((0, 3)),
        np.array(["2020-01-01"], dtype="M8[D]"),
    ],
    ids=repr,
)
def test_arrays_keep_their_order_and_can_be_written(array: Any) -> None:
    (again,) = plain(array)
    assert np.array_equal(again, array)
    assert again.flags.f_contiguous == array.flags.f_contiguous or array.ndim < 2
    again[...] = again


@pytest.mark.parametrize(
    "value", [-0.0, float("inf"), 1e300, "\ud800", np.float32(1.5), np.bool_(True)], ids=repr
)
def test_odd_scalars(value: Any) -> None:
    assert same(plain(value)[0], value)
    assert plain(10**5000) == [10**5000]


def test_what_is_shared_stays_shared_and_may_hold_itself() -> None:
    shared: list[Any] = [1]
    shared.append(shared)
    table = np.arange(3)
    first, second, tables = plain(shared, {"it": shared}, (table, table))
    assert first is first[1] is second["it"]
    assert tables[0] is tables[1]


@pytest.mark.parametrize(
    "value",
    [
        OrderedDict(a=1),
        {"deep": [range(3)]},
        np.array([None, 1], dtype=object),
        np.ma.masked_array([1], [True]),
    ],
    ids=str,
)
def test_other_objects_are_pickled_alone(value: Any) -> None:
    data = encode([[1, 2], value, "after"])
    with pytest.raises(ValueError, match="needs pickle"):
        decode(data, allow_pickle=False)
    before, again, after = decode(data)
    assert (before, after) == ([1, 2], "after")
    assert repr(again) == repr(value)


def test_what_cannot_be_pickled_raises_what_pickle_raises() -> None:
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError)):
        encode([lambda: 0])


def test_damage_is_an_error() -> None:
    for data in (encode([b"abc", [1]])[:-1], b"", b"[]\n"):
        with pytest.raises(ValueError, match="damaged values"):
            decode(data)
    with pytest.raises(ValueError, match="layout 9"):
        decode(b'{"layout":9,"values":[],"lengths":[]}\n')
