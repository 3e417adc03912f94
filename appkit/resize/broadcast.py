"""What rank 0 tells the others: all at a safe point, newcomers when they join."""

from dataclasses import dataclass

from pliant.appkit.coordinator.checkpoint_messages import SaveOrder
from pliant.appkit.coordinator.messages import Asked, Decision
from pliant.appkit.loops import Position
from pliant.appkit.performance.monitor import PerformanceHistory
from pliant.appkit.resize.preallocate import PreallocateOrder
from pliant.appkit.resize.prefetch import PrefetchOrder


@dataclass(frozen=True, slots=True)
class SafePointMessage:
    """What rank 0 tells all at a safe point."""

    order: Decision | SaveOrder | PrefetchOrder | PreallocateOrder | None
    asked: Asked | None
    #: Told with a resize; None: without one.
    known: PerformanceHistory | None


@dataclass(frozen=True, slots=True)
class JoinState:
    """What newcomers are told beside the data."""

    position: Position
    asked: Asked | None
    known: PerformanceHistory
