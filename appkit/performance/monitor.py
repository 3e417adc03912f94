"""What the library knows of its program: how fast it is, what moving it costs, what is worth it."""

from dataclasses import dataclass, replace

from pliant.appkit.coordinator.messages import Offer, Progress, RequestRecord, RequestState
from pliant.appkit.data.entry import Registry
from pliant.appkit.loops import Loops
from pliant.appkit.performance.cost_model import (
    ResizeCostModel,
    ResizeRecord,
    cost_benefit_objection,
)
from pliant.appkit.performance.timing import IterationTimer, ResizeTiming, Table


@dataclass(frozen=True, slots=True)
class PerformanceHistory:
    """What rank 0 has learned, for those that may take its place."""

    speeds: Table
    moves: tuple[ResizeRecord, ...]


class PerformanceMonitor:
    """Measurements of this process, and judgements that rest on them."""

    def __init__(self, registry: Registry, loops: Loops) -> None:
        """Begin without any."""
        self.timer = IterationTimer()
        self._cost_model = ResizeCostModel()
        self._registry, self._loops = registry, loops

    def history(self) -> PerformanceHistory:
        """What goes with the role of rank 0."""
        return PerformanceHistory(self.timer.table, self._cost_model.records)

    def adopt(self, known: PerformanceHistory) -> None:
        """Take over what rank 0 knows."""
        self.timer.table, self._cost_model.records = known.speeds, known.moves

    def record_resize(self, grows: bool, report: ResizeTiming) -> None:
        """A resize was carried out."""
        seconds = report.seconds
        times = (seconds.get("move", 0.0), seconds.get("total", 0.0))
        self._cost_model.add(ResizeRecord(grows, report.bytes_moved, *times))

    def progress(self) -> Progress:
        """Return what the server is told about progress. The session's thread calls this."""
        loops = self._loops
        return Progress(
            loops.since_safe_point_s,
            loops.safe_points,
            loops.iteration,
            loops.iterations,
            self.timer.measured(),
        )

    def with_cost(self, offer: Offer) -> Offer:
        """The offer with what it would cost."""
        cost = self._cost_model.estimate(self._registry, offer.current, offer.proposed)
        return replace(offer, estimated_cost_s=cost)

    def objection(self, offer: Offer, asked: RequestRecord | None) -> str:
        """Why an offer is not worth it, empty: it is; what the program has asked for always is."""
        pending = asked is not None and asked.state is RequestState.PENDING
        if asked is not None and pending and offer.proposed in asked.sizes:
            return ""
        return cost_benefit_objection(offer, self._loops.remaining, self.timer.measured())
