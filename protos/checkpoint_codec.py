"""Convert messages about checkpoints and suspensions; see `pliant.protos.codec`."""

from __future__ import annotations

from pliant.core.events import SaveReported, SuspensionHeld
from pliant.core.model.checkpoint import SaveProgress, SaveStep
from pliant.core.support.input_limits import MAX_TEXT
from pliant.core.values.ids import JobId, ResizeId
from pliant.protos import app_pb2
from pliant.protos.codec import check_finite
from pliant.protos.codec_error import CodecError

_PROGRESS = {
    SaveProgress.HELD: app_pb2.SAVE_WORD_HELD,
    SaveProgress.BEGUN: app_pb2.SAVE_WORD_BEGUN,
    SaveProgress.SAVED: app_pb2.SAVE_WORD_SAVED,
    SaveProgress.FAILED: app_pb2.SAVE_WORD_FAILED,
    SaveProgress.DECLINED: app_pb2.SAVE_WORD_DECLINED,
}
_PROGRESS_BACK = {wire: progress for progress, wire in _PROGRESS.items()}
_STEPS = {
    SaveStep.SAVE: app_pb2.SUSPEND_STEP_SAVE,
    SaveStep.KEEP: app_pb2.SUSPEND_STEP_KEEP,
    SaveStep.LEAVE: app_pb2.SUSPEND_STEP_LEAVE,
}
_STEPS_BACK = {wire: step for step, wire in _STEPS.items()}


def save_status_to_proto(progress: SaveProgress) -> app_pb2.SaveWord.ValueType:
    """Convert how far an application has come with a checkpoint to a value of protobuf."""
    return _PROGRESS[progress]


def suspend_step_to_proto(step: SaveStep) -> app_pb2.SuspendStep.ValueType:
    """Convert an order with which the server suspends a job to a value of protobuf.

    For example, the job's application is ordered to save a checkpoint, or to end.
    """
    return _STEPS[step]


def suspend_step_from_proto(step: app_pb2.SuspendStep.ValueType) -> SaveStep:
    """Read an order that `suspend_step_to_proto` has converted to protobuf, or raise CodecError."""
    found = _STEPS_BACK.get(step)
    if found is None:
        raise CodecError(f"step: {step} is unknown")
    return found


def save_from_proto(job: JobId, run: int, message: app_pb2.SaveReport) -> SaveReported:
    """Convert an application's report on a checkpoint from protobuf, or raise CodecError."""
    progress = _PROGRESS_BACK.get(message.word)
    if progress is None:
        raise CodecError(f"word: {message.word} is unknown")
    return SaveReported(
        job=job,
        run=run,
        number=ResizeId(message.number),
        progress=progress,
        reason=message.reason[:MAX_TEXT],
        iteration=message.iteration,
        bytes=message.bytes,
        seconds=check_finite("seconds", message.seconds),
    )


def suspension_from_proto(message: app_pb2.Hello) -> SuspensionHeld | SaveReported:
    """Return what an application reports about its suspension in its first message (Hello).

    Returns:
        `SaveReported` if the application has begun to save a checkpoint, or has finished or failed.
        Otherwise `SuspensionHeld`, with the number of the suspension that waits for a safe point; 0
        if there is none.

    Raises:
        CodecError: a field has a value that no correct program sends.
    """
    job, run = JobId(message.job), message.run
    if not message.HasField("saving"):
        return SuspensionHeld(job, run)
    said = save_from_proto(job, run, message.saving)
    return SuspensionHeld(job, run, said.number) if said.progress is SaveProgress.HELD else said
