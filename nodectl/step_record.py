"""The accounting record of a step, which is a program that a script of a job has started."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

#: Steps of one run of a job that are recorded; later ones are not.
MAX_STEPS = 1000
#: Longest name of a step, in characters.
MAX_NAME = 64
#: Sizes of one step that are recorded; later ones count in its processor-seconds only. So the
#: report of a script with many resizes stays far below the longest message.
MAX_SIZES = 100


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The accounting record of one step, which is a program that a script of a job has started.

    Times are in seconds since the epoch.
    """

    #: Counts the requests of the script, from 1.
    number: int
    #: The file name of its program.
    name: str
    #: Its largest size.
    processors: int
    start: float
    end: float
    code: int
    #: The signal that ended it; 0 if none did.
    signal: int
    #: Its first sizes, each with the time from which it had this size; none in records of
    #: versions that did not record them.
    sizes: tuple[tuple[float, int], ...] = ()
    #: Processor-seconds over all sizes; 0 in records of such versions.
    processor_s: float = 0.0


def read_steps(records: Any) -> tuple[StepRecord, ...]:
    """Read accounting records of steps from JSON objects, which a user's shim may have sent.

    Raises:
        ValueError, TypeError, KeyError: the records are damaged.
    """
    if not isinstance(records, list | tuple) or len(records) > MAX_STEPS:
        raise ValueError("steps: expected a list of steps of one run")
    return tuple(_read_step(record) for record in records)


def _read_step(record: Any) -> StepRecord:
    name = record["name"]
    if not isinstance(name, str) or len(name) > MAX_NAME:
        raise ValueError("the name of a step is invalid")
    sizes = record.get("sizes", ())
    if not isinstance(sizes, list | tuple) or len(sizes) > MAX_SIZES:
        raise ValueError("the sizes of a step are invalid")
    return StepRecord(
        number=_number(record["number"], 1, 1 << 31),
        name=name.encode("utf-8", "replace").decode(),
        processors=_number(record["processors"], 1, 1 << 31),
        start=_time(record["start"]),
        end=_time(record["end"]),
        code=_number(record["code"], -(1 << 31), (1 << 31) - 1),
        signal=_number(record["signal"], 0, 255),
        sizes=tuple((_time(at), _number(size, 1, 1 << 31)) for at, size in sizes),
        processor_s=_time(record.get("processor_s", 0.0)),
    )


def _number(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r:.40} in a step is out of range")
    return value


def _time(value: Any) -> float:
    if not isinstance(value, float) or not math.isfinite(value):
        raise ValueError(f"{value!r:.40} is no time of a step")
    return value
