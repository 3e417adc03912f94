"""Stages of a resize: which may follow which."""

from __future__ import annotations

import pytest

from pliant.core.model.negotiation import Negotiation, NegotiationState
from pliant.core.model.resize import (
    Agreed,
    Begun,
    Go,
    IllegalStageError,
    Negotiating,
    Preparing,
    Releasing,
    Resize,
    ResizeStage,
    Stage,
    Withdrawing,
)
from pliant.core.values.ids import ResizeId

AGREED = Negotiation(1, NegotiationState.AGREED)
STAGES: tuple[Stage, ...] = (
    Negotiating(),
    Agreed(),
    Preparing(),
    Go(),
    Begun(5.0),
    Withdrawing("not needed"),
    Releasing(),
)
LEGAL = {
    ("talk", "agreed"),
    ("agreed", "prepare"),
    ("prepare", "go"),
    ("go", "begun"),
    ("go", "withdrawing"),
    ("go", "release"),
    ("begun", "begun"),
    ("begun", "release"),
    ("withdrawing", "begun"),
    ("withdrawing", "release"),
}


def resize(stage: Stage, negotiation: Negotiation = AGREED) -> Resize:
    return Resize(ResizeId(1), negotiation, 0.0, (0, 1), (0,), stage=stage)


def test_each_stage_has_its_name() -> None:
    assert [stage.name for stage in STAGES] == list(ResizeStage)


@pytest.mark.parametrize("before", STAGES)
@pytest.mark.parametrize("after", STAGES)
def test_only_legal_steps_can_be_made(before: Stage, after: Stage) -> None:
    made = resize(before)
    if (before.name, after.name) in LEGAL:
        made.enter(after)
        assert made.stage is after
    else:
        with pytest.raises(IllegalStageError, match=f"{after.name} cannot follow {before.name}"):
            made.enter(after)
        assert made.stage is before


@pytest.mark.parametrize("stage", STAGES[1:])
def test_later_stages_need_an_agreement(stage: Stage) -> None:
    with pytest.raises(IllegalStageError, match="needs an agreement"):
        resize(stage, Negotiation(1))


def test_nothing_is_agreed_before_the_negotiation_is() -> None:
    made = resize(Negotiating(), Negotiation(1, NegotiationState.OFFERED))
    with pytest.raises(IllegalStageError, match="needs an agreement"):
        made.enter(Agreed())
