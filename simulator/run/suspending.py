"""Suspensions of simulated jobs: a job saves a checkpoint, leaves, and resumes in another run.

At its next safe point a job stops and writes a checkpoint, which takes ``checkpoint_cost`` on all
its processors; then its processes exit. When the job is started again, it reads the checkpoint for
``restart_cost`` on all processors of its new allocation and resumes with the work that was left.
No work is lost. A job that loses a node after a suspension also resumes from its last checkpoint,
and repeats the work that it has done since.
"""

from collections.abc import Mapping, Sequence
from random import Random

from pliant.core.commands import SendSuspend
from pliant.core.events import Event, ProcessesExited, SaveReported
from pliant.core.model.checkpoint import SaveProgress, SaveStep
from pliant.core.values.ids import FIRST_START
from pliant.simulator.inputs.settings import Settings
from pliant.simulator.run.event_queue import EventQueue
from pliant.simulator.run.evolving import EvolvingRun, Phases
from pliant.simulator.run.job_run import Run, next_safe_point
from pliant.simulator.run.metrics import Metrics
from pliant.simulator.run.simulated_nodes import SimulatedNodes


class Suspensions:
    """Executes the core's orders to suspend jobs.

    Args:
        settings: the costs, and the interval between safe points.
        machine: returns the exits of the processes.
        queue: the clock; safe points and ends of saves are scheduled in it.
        runs: the jobs that hold processors, by number.
        phases: cancels the open requests of evolving jobs that leave.
        metrics: counts suspensions and their cost.
    """

    def __init__(
        self,
        settings: Settings,
        machine: SimulatedNodes,
        queue: EventQueue,
        runs: Mapping[int, Run],
        phases: Phases,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._machine = machine
        self._queue = queue
        self._runs = runs
        self._phases = phases
        self._metrics = metrics
        self._rng = Random(f"{settings.seed}:checkpoints")
        #: Orders to save whose safe point has not been reached, by job.
        self._pending: dict[int, SendSuspend] = {}

    def execute(self, command: SendSuspend, run: Run) -> Sequence[Event]:
        """Execute the step of a suspension that a command names; return its immediate events.

        The steps are to save a checkpoint at the next safe point, to leave the processors, and to
        give up a save that has not begun.
        """
        if command.step is SaveStep.LEAVE:
            return self._leave(command, run)
        if command.step is SaveStep.SAVE:
            self._pending[command.job] = command
            now = self._queue.now
            at = next_safe_point(run.start, now, self._settings.safe_point_interval)
            if at <= now:
                return self._save(command)
            self._queue.schedule(at, self._save, command)
        elif self._pending.pop(command.job, None) is not None:
            return (_report(command, SaveProgress.DECLINED),)
        return ()

    def restore(self, run: Run, earlier: Run) -> None:
        """Start another run of a job with the work and the phase that its last checkpoint has."""
        cost = self._settings.restart_cost.draw(self._rng)
        self._metrics.suspension_cost_s += cost * len(run.ranks)
        run.resume_from(earlier, cost)

    def _save(self, command: SendSuspend) -> Sequence[Event]:
        """Stop the job at the safe point and save a checkpoint; return the events that follow.

        Nothing happens if the job has ended.
        """
        if self._pending.get(command.job) is not command:
            return ()
        del self._pending[command.job]
        run, now = self._runs.get(command.job), self._queue.now
        if run is None or run.ended or run.number != command.run or run.end <= now:
            return ()
        run.save(now)
        self._metrics.changes += 1
        cost = self._settings.checkpoint_cost.draw(self._rng)
        self._metrics.suspension_cost_s += cost * len(run.ranks)
        begun = _report(command, SaveProgress.BEGUN)
        saved = _report(command, SaveProgress.SAVED, cost)
        if not cost:
            return (begun, saved)
        self._queue.schedule(now + cost, self._saved, (run, saved))
        return (begun,)

    @staticmethod
    def _saved(argument: tuple[Run, SaveReported]) -> Sequence[Event]:
        run, saved = argument
        return () if run.ended else (saved,)

    def _leave(self, command: SendSuspend, run: Run) -> Sequence[Event]:
        if run.ended or run.number != command.run:
            return ()
        run.finish(self._queue.now)
        if isinstance(run, EvolvingRun):
            self._phases.cancel_requests(run)
        self._metrics.counts["suspensions"] += 1
        self._metrics.changes += 1
        exits = self._machine.exits(run.ranks)
        return (ProcessesExited(command.job, command.run, FIRST_START, exits),)


def _report(command: SendSuspend, status: SaveProgress, seconds: float = 0.0) -> SaveReported:
    return SaveReported(command.job, command.run, command.number, status, seconds=seconds)
