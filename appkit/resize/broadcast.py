"""What rank 0 tells the others: all at a safe point, newcomers when they join."""

from dataclasses import dataclass

from pliant.appkit.coordinator.checkpoint_messages import SaveOrder
from pliant.appkit.coordinator.messages import Asked, Decision
from pliant.appkit.loops import Position
from pliant.appkit.performance.monitor import Known
from pliant.appkit.resize.preallocate import MakeRoom
from pliant.appkit.resize.prefetch import Carry


@dataclass(frozen=True, slots=True)
class Word:
    """What rank 0 tells all at a safe point."""

    order: Decision | SaveOrder | Carry | MakeRoom | None
    asked: Asked | None
    #: Told with a resize; None: without one.
    known: Known | None


@dataclass(frozen=True, slots=True)
class Luggage:
    """What newcomers are told beside the data."""

    position: Position
    asked: Asked | None
    known: Known
