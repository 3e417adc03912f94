"""What rank 0 tells the others: all at a safe point, newcomers when they join."""

from dataclasses import dataclass

from pliant.appkit.ahead import Carry
from pliant.appkit.insight import Known
from pliant.appkit.loops import Position
from pliant.appkit.messages import Asked, Decision
from pliant.appkit.room import MakeRoom
from pliant.appkit.saves import SaveOrder


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
