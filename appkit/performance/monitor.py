"""The measurements of this process, the cost estimates from them, and the reported progress."""

from dataclasses import dataclass, replace

from pliant.appkit.coordinator.messages import Offer, Progress, RequestRecord, RequestState
from pliant.appkit.data.registered_data import Registry
from pliant.appkit.loops import Loops
from pliant.appkit.performance.cost_model import (
    ResizeCostModel,
    ResizeRecord,
    cost_benefit_objection,
)
from pliant.appkit.performance.timing import IterationTimer, ResizeTiming, Table


@dataclass(frozen=True, slots=True)
class PerformanceHistory:
    """The measurements of rank 0, sent with each resize in case another process becomes rank 0.

    The field names are part of the protocol.
    """

    speeds: Table
    moves: tuple[ResizeRecord, ...]


class PerformanceMonitor:
    """Measures loops and resizes in this process, and estimates what an offer costs and gains."""

    def __init__(self, registry: Registry, loops: Loops) -> None:
        """Create a monitor that has no measurements yet."""
        self.timer = IterationTimer()
        self._cost_model = ResizeCostModel()
        self._registry, self._loops = registry, loops

    def history(self) -> PerformanceHistory:
        """Return the measurements of this process, as rank 0 sends them with each resize."""
        return PerformanceHistory(self.timer.table, self._cost_model.records)

    def adopt(self, known: PerformanceHistory) -> None:
        """Replace the measurements of this process by the measurements of rank 0."""
        self.timer.table, self._cost_model.records = known.speeds, known.moves

    def record_resize(self, grows: bool, report: ResizeTiming) -> None:
        """Store the durations and the bytes of a committed resize.

        Args:
            grows: whether it was a growth.
            report: the timing of the resize.
        """
        seconds = report.seconds
        times = (seconds.get("move", 0.0), seconds.get("total", 0.0))
        self._cost_model.add(ResizeRecord(grows, report.bytes_moved, *times))

    def progress(self) -> Progress:
        """Return how far the program is, and how fast, for a report to the server.

        Called in the thread of the server stream.
        """
        loops = self._loops
        return Progress(
            loops.since_safe_point_s,
            loops.safe_points,
            loops.iteration,
            loops.iterations,
            self.timer.measured(),
        )

    def with_cost(self, offer: Offer) -> Offer:
        """Return the offer with an estimate of how many seconds the resize would take."""
        cost = self._cost_model.estimate(self._registry, offer.current, offer.proposed)
        return replace(offer, estimated_cost_s=cost)

    def objection(self, offer: Offer, asked: RequestRecord | None) -> str:
        """Return why the library refuses an offer; empty if it accepts.

        It refuses a growth that takes more time than it saves, unless the program itself has
        requested the offered size.

        Args:
            offer: the offer, with its estimated cost.
            asked: the program's latest request for another size; None if there is none.
        """
        pending = asked is not None and asked.state is RequestState.PENDING
        if asked is not None and pending and offer.proposed in asked.sizes:
            return ""
        return cost_benefit_objection(offer, self._loops.remaining, self.timer.measured())
