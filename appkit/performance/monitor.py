"""What the library knows of its program: how fast it is, what moving it costs, what is worth it."""

from dataclasses import dataclass, replace

from pliant.appkit.coordinator.messages import Asked, Offer, Progress, RequestState
from pliant.appkit.data.entry import Registry
from pliant.appkit.loops import Loops
from pliant.appkit.performance.cost_model import Costs, Move
from pliant.appkit.performance.gain import refusal
from pliant.appkit.performance.timing import Report, Speeds, Table


@dataclass(frozen=True, slots=True)
class Known:
    """What rank 0 has learned, for those that may take its place."""

    speeds: Table
    moves: tuple[Move, ...]


class Insight:
    """Measurements of this process, and judgements that rest on them."""

    def __init__(self, registry: Registry, loops: Loops) -> None:
        """Begin without any."""
        self.speeds = Speeds()
        self._costs = Costs()
        self._registry, self._loops = registry, loops

    def known(self) -> Known:
        """What goes with the role of rank 0."""
        return Known(self.speeds.table, self._costs.moves)

    def learn(self, known: Known) -> None:
        """Take over what rank 0 knows."""
        self.speeds.table, self._costs.moves = known.speeds, known.moves

    def moved(self, grows: bool, report: Report) -> None:
        """A resize was carried out."""
        seconds = report.seconds
        times = (seconds.get("move", 0.0), seconds.get("total", 0.0))
        self._costs.remember(Move(grows, report.bytes_moved, *times))

    def progress(self) -> Progress:
        """Return what the server is told about progress. The session's thread calls this."""
        loops = self._loops
        return Progress(
            loops.since_safe_point_s,
            loops.safe_points,
            loops.iteration,
            loops.iterations,
            self.speeds.measured(),
        )

    def valued(self, offer: Offer) -> Offer:
        """The offer with what it would cost."""
        cost = self._costs.estimate(self._registry, offer.current, offer.proposed)
        return replace(offer, estimated_cost_s=cost)

    def refusal(self, offer: Offer, asked: Asked | None) -> str:
        """Why an offer is not worth it, empty: it is; what the program has asked for always is."""
        pending = asked is not None and asked.state is RequestState.PENDING
        if asked is not None and pending and offer.proposed in asked.sizes:
            return ""
        return refusal(offer, self._loops.remaining, self.speeds.measured())
