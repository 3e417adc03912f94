"""Messages between the processes of a job as plain data, without pickle.

A joining rank may run another version of Pliant than the running ranks, for example after a node
was upgraded. Each value of a class below becomes a dict with the name of the class. A reader
ignores unknown fields and uses defaults for missing ones. Changes that a reader must know about
raise the protocol number, which the join handshake compares (`join_mismatch`).
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from pliant.appkit.coordinator.messages import (
    CheckpointOrder,
    Decision,
    RequestRecord,
    RequestState,
)
from pliant.appkit.loops import Position
from pliant.appkit.performance.cost_model import ResizeRecord
from pliant.appkit.performance.monitor import PerformanceHistory
from pliant.appkit.performance.timing import Samples
from pliant.appkit.resize.preallocate_memory import PreallocateOrder
from pliant.appkit.resize.prefetch_constant_arrays import PrefetchOrder, PrefetchStep
from pliant.appkit.resize.safe_point import JoinState, SafePointMessage
from pliant.appkit.serialization import decode, encode
from pliant.core.values.sizes import Sizes, parse_sizes

#: The name under which each class is sent. These names are part of the protocol between ranks,
#: which may run different versions, so they stay when a class is renamed.
_CLASSES: dict[str, type] = {
    "Asked": RequestRecord,
    "Carry": PrefetchOrder,
    "Decision": Decision,
    "Known": PerformanceHistory,
    "Luggage": JoinState,
    "MakeRoom": PreallocateOrder,
    "Move": ResizeRecord,
    "Position": Position,
    "RequestState": RequestState,
    "Samples": Samples,
    "SaveOrder": CheckpointOrder,
    "Step": PrefetchStep,
    "Word": SafePointMessage,
}
_NAMES = {kind: name for name, kind in _CLASSES.items()}
#: The key with the name of the class.
_CLASS = "class"


def pack_message(message: SafePointMessage) -> bytes:
    """Return the message of a safe point as bytes."""
    return encode([to_plain(message)], allow_pickle=False)


def unpack_message(data: bytes) -> SafePointMessage:
    """Return the message from the bytes that `pack_message` returned.

    Raises:
        ValueError: the bytes are damaged, or from a version that this one cannot read.
    """
    message = from_plain(decode(data, allow_pickle=False)[0])
    if not isinstance(message, SafePointMessage):
        raise ValueError(f"expected a message of rank 0, got {type(message).__name__}")
    return message


def to_plain(value: Any) -> Any:
    """Return a value as plain data: numbers, texts, dicts, lists and tuples.

    Raises:
        TypeError: a part is of a class that is not sent to other processes.
    """
    if isinstance(value, Sizes):
        return {_CLASS: "Sizes", "text": str(value), "preferred": value.preferred}
    kind: Any = type(value)
    if (name := _NAMES.get(kind)) is not None:
        if isinstance(value, Enum):
            return {_CLASS: name, "value": str(value.value)}
        return {_CLASS: name} | {
            each.name: to_plain(getattr(value, each.name)) for each in fields(kind)
        }
    if isinstance(value, Mapping):
        return {_CLASS: "dict", "pairs": [(key, to_plain(held)) for key, held in value.items()]}
    if isinstance(value, list | tuple):
        return type(value)(to_plain(each) for each in value)
    if is_dataclass(value) or isinstance(value, Enum):
        raise TypeError(f"a {kind.__name__} is not sent to other processes")
    return value


def from_plain(value: Any) -> Any:
    """Return the value from what `to_plain` returned.

    Raises:
        ValueError: this version does not know a class, or a field is missing.
    """
    if isinstance(value, list | tuple):
        return type(value)(from_plain(each) for each in value)
    if not isinstance(value, dict):
        return value
    name = value.get(_CLASS)
    try:
        if name == "dict":
            return {key: from_plain(held) for key, held in value["pairs"]}
        if name == "Sizes":
            return parse_sizes(value["text"], value["preferred"])
        kind: Any = _CLASSES[str(name)]
        if issubclass(kind, Enum):
            return kind(value["value"])
        known = {each.name for each in fields(kind)}
        return kind(**{key: from_plain(held) for key, held in value.items() if key in known})
    except (KeyError, TypeError) as error:
        raise ValueError(f"a {name} of another version of Pliant: {error!r}") from error
