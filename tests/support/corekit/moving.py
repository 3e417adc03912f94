"""A core with two nodes, and a strategy that moves jobs when a test says so."""

from __future__ import annotations

from corekit.rig import Rig
from pliant.core import events
from pliant.core.job_explanation import explain
from pliant.core.model.checkpoint import SaveProgress
from pliant.core.model.nodes import NodeReservation
from pliant.core.model.views_and_plans import Migration, Plan, Start, View
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import block, lowest
from pliant.core.values.user_limits import UserLimits
from pliant.strategies import Strategy

N1, N2 = NodeName("n1"), NodeName("n2")
JOB = JobId(1)


class Mover(Strategy):
    """Start waiting jobs on the first free processors, and move those that the test names."""

    def __init__(self) -> None:
        self.moves: list[Migration] = []
        self.reserved: tuple[NodeReservation, ...] = ()
        #: Whether it starts no job.
        self.is_idle = False

    def allocate_processors(self, view: View) -> Plan:
        free, starts = view.free, []
        for job in view.waiting:
            if free and not self.is_idle:
                starts.append(Start(job.id, lowest(free, 1)))
                free &= ~starts[-1].processors
        moves, self.moves = tuple(self.moves), []
        return Plan(starts=tuple(starts), migrations=moves, reservations=self.reserved)


class Moving(Rig):
    """Nodes n1 (processors 0 and 1) and n2 (2 and 3), and a strategy that moves on demand."""

    def __init__(self, user_limits: UserLimits | None = None) -> None:
        self.mover = Mover()
        limits = {} if user_limits is None else {"user_limits": user_limits}
        super().__init__({"n1": 2, "n2": 2}, self.mover, **limits)  # type: ignore[arg-type]

    def move(self, to: int = 2) -> None:
        self.mover.moves = [Migration(JOB, block(to, 1), "n1 is short of memory")]
        self.poke()

    def poke(self) -> None:
        """Let the strategy plan."""
        self.core.state.plan_due = True
        self.do(events.NodeAble(N1))

    def saved(self, word: SaveProgress = SaveProgress.SAVED, reason: str = "") -> None:
        job = self.job(1)
        assert job.saving is not None
        self.do(
            events.SaveReported(
                JOB, job.run, job.saving.number, word, reason, iteration=40, bytes=8, seconds=0.5
            )
        )

    def texts_of(self, kind: str) -> list[str]:
        return [note.text for note in self.notes if note.kind == kind]

    def why(self) -> str:
        return "\n".join(explain(self.core, JOB, self.now))
