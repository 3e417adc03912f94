"""Quickly made values are frozen dataclasses in every other respect."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from pliant.core.model.views_and_plans import Plan
from pliant.core.support.fast_dataclass import fast_init


@fast_init
@dataclass(frozen=True, slots=True)
class Quick:
    """As most values of the core are."""

    first: int
    second: str = "two"
    third: dict[str, int] = field(default_factory=dict)
    length: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", len(self.second))


@dataclass(frozen=True, slots=True)
class Plain:
    """The same without haste."""

    first: int
    second: str = "two"
    third: dict[str, int] = field(default_factory=dict)
    length: int = field(init=False, compare=False)


def test_it_is_made_as_any_dataclass_is() -> None:
    made = Quick(1)
    assert (made.first, made.second, made.third, made.length) == (1, "two", {}, 3)
    assert type(made) is Quick
    assert Quick(1, "x", {"y": 2}) == Quick(third={"y": 2}, second="x", first=1)
    assert Quick(1) != Quick(2)
    assert Quick(1).third is not Quick(1).third
    assert repr(made) == "Quick(first=1, second='two', third={}, length=3)"
    assert str(inspect.signature(Quick)).count("third") == 1
    assert list(inspect.signature(Quick).parameters) == list(inspect.signature(Plain).parameters)


@pytest.mark.parametrize("arguments", [(), (1, "x", {}, 3), (1, "x", {}, 3, 4)])
def test_wrong_arguments_are_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(TypeError, match="__init__"):
        Quick(*arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="fourth"):
        Quick(1, fourth=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("value", [Quick(1), replace(Quick(1), second="other"), Plan()])
def test_it_cannot_be_changed(value: Quick | Plan) -> None:
    name = fields(value)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, 2)
    with pytest.raises(FrozenInstanceError):
        delattr(value, name)
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        value.other = 2  # type: ignore[union-attr]


def test_it_can_be_copied_and_sent() -> None:
    made = replace(Quick(1, "other"), first=7)
    assert (made.first, made.second, made.length) == (7, "other", 5)
    for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert again == made
        assert again.length == 5
        with pytest.raises(FrozenInstanceError):
            again.first = 8  # type: ignore[misc]
