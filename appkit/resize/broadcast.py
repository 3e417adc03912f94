"""What rank 0 tells the others: all at a safe point, newcomers when they join."""

from dataclasses import dataclass

from pliant.appkit.coordinator.messages import CheckpointOrder, Decision, RequestRecord
from pliant.appkit.loops import Position
from pliant.appkit.performance.monitor import PerformanceHistory
from pliant.appkit.resize.preallocate import PreallocateOrder
from pliant.appkit.resize.prefetch import PrefetchOrder


@dataclass(frozen=True, slots=True)
class SafePointMessage:
    """What rank 0 tells all at a safe point."""

    order: Decision | CheckpointOrder | PrefetchOrder | PreallocateOrder | None
    asked: RequestRecord | None
    #: Told with a resize; None: without one.
    known: PerformanceHistory | None


@dataclass(frozen=True, slots=True)
class JoinState:
    """What newcomers are told beside the data."""

    position: Position
    asked: RequestRecord | None
    known: PerformanceHistory
