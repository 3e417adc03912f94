"""Checkpoints and suspensions on the wire: round trips, and what no correct program sends."""

from __future__ import annotations

import pytest

from pliant.appkit.coordinator import protobuf_codec
from pliant.appkit.coordinator.messages import CheckpointReport
from pliant.core.events import SaveReported, SuspensionHeld
from pliant.core.model.checkpoint import SaveProgress, SaveStep
from pliant.core.values.ids import JobId, ResizeId
from pliant.protos import app_pb2 as pb
from pliant.protos.checkpoint_codec import (
    save_from_proto,
    suspend_step_from_proto,
    suspend_step_to_proto,
    suspension_from_proto,
)
from pliant.protos.codec_error import CodecError


@pytest.mark.parametrize("word", SaveProgress)
def test_every_word_arrives(word: SaveProgress) -> None:
    said = protobuf_codec.report_to_wire(CheckpointReport(3, word, "why", 40, 1 << 40, 1.5)).save
    expected = SaveReported(JobId(7), 2, ResizeId(3), word, "why", 40, 1 << 40, 1.5)
    assert save_from_proto(JobId(7), 2, said) == expected
    hello = pb.Hello(job=7, run=2, saving=said)
    held = SuspensionHeld(JobId(7), 2, ResizeId(3))
    assert suspension_from_proto(hello) == (held if word is SaveProgress.HELD else expected)


def test_a_hello_without_a_suspension_says_so() -> None:
    assert suspension_from_proto(pb.Hello(job=7, run=2)) == SuspensionHeld(JobId(7), 2)


@pytest.mark.parametrize("step", SaveStep)
def test_every_step_arrives(step: SaveStep) -> None:
    order = pb.Suspend(number=3, step=suspend_step_to_proto(step))
    assert protobuf_codec.suspension_from_wire(order) == (3, step)


def test_nonsense_is_named() -> None:
    with pytest.raises(CodecError, match="word: 0 is unknown"):
        save_from_proto(JobId(1), 1, pb.SaveReport())
    with pytest.raises(CodecError, match="step: 0 is unknown"):
        suspend_step_from_proto(pb.Suspend().step)
    said = pb.SaveReport(word=pb.SAVE_WORD_SAVED, seconds=float("nan"), reason="x" * 5000)
    with pytest.raises(CodecError, match="seconds"):
        save_from_proto(JobId(1), 1, said)
    said.seconds = 0.0
    assert len(save_from_proto(JobId(1), 1, said).reason) == 1000
