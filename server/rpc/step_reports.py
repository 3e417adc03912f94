"""Read the ended steps of scripts, which nodes report together with exits.

A step is a program that a script started with ``pliant run``.
"""

from __future__ import annotations

import math

from pliant.protos import node_pb2
from pliant.protos.codec_error import CodecError
from pliant.protos.sanitize_text import sanitize_text
from pliant.server.database.statements import StepOfScript

#: Steps of one run that a node may report, and sizes of one step.
_MAX_STEPS = 1000
_MAX_SIZES = 100


def steps_from_proto(message: node_pb2.RanksExited) -> dict[int, tuple[StepOfScript, ...]]:
    """Return the ended steps (programs that scripts started), by the rank of the script.

    Raises:
        CodecError: they are invalid.
    """
    return {
        end.rank: tuple(_step(step) for step in end.steps[:_MAX_STEPS])
        for end in message.exits
        if end.steps
    }


def _step(step: node_pb2.Step) -> StepOfScript:
    sizes = tuple((size.start, size.processors) for size in step.sizes[:_MAX_SIZES])
    times = (step.start, step.end, step.processor_s, *(at for at, _ in sizes))
    if not all(map(math.isfinite, times)):
        raise CodecError(f"step {step.number}: its times are invalid")
    return StepOfScript(
        step.number,
        sanitize_text(step.name),
        step.processors,
        step.start,
        step.end,
        step.code,
        step.signal,
        sizes,
        # A shim that was started before an upgrade sends no sizes.
        step.processor_s or step.processors * (step.end - step.start),
    )
