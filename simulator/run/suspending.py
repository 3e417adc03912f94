"""Suspensions of simulated jobs: saved at a safe point, gone, and on from there in another run.

At its next safe point a job stops and writes a checkpoint, which takes ``checkpoint_cost`` on all
its processors; then its processes leave. When it is started again it reads the checkpoint for
``restart_cost`` on all processors of its new allocation, and goes on with the work that was left.
No work is lost. A job that loses a node after a suspension goes on from its last checkpoint, too,
and does the work since then again.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from pliant.core.commands import SendSuspend
from pliant.core.events import Event, ProcessesExited, SaveReported
from pliant.core.model.checkpoint import SaveStep, SaveWord
from pliant.core.values.ids import FIRST_START
from pliant.simulator.run.evolving import EvolvingRun
from pliant.simulator.run.progress import Run, next_safe_point

if TYPE_CHECKING:
    from pliant.simulator.run.effects import Effects
    from pliant.simulator.run.engine import Engine


class Suspending:
    """Carries out what the core asks of jobs that are to be suspended.

    Args:
        engine: has the clock and the future.
        effects: has the runs.
    """

    def __init__(self, engine: Engine, effects: Effects) -> None:
        self._engine, self._effects = engine, effects
        self._settings = engine.settings
        self._chance = Random(f"{self._settings.seed}:checkpoints")
        #: Orders whose safe point is still to come.
        self._ordered: dict[int, SendSuspend] = {}

    def order(self, command: SendSuspend) -> None:
        """Do the next step of a suspension."""
        run, now = self._effects.runs[command.job], self._engine.now
        if command.step is SaveStep.LEAVE:
            self._effects.follow += self._leave(command, run)
        elif command.step is SaveStep.SAVE:
            self._ordered[command.job] = command
            at = next_safe_point(run.start, now, self._settings.safe_point_interval)
            if at <= now:
                self._effects.follow += self._save(command)
            else:
                self._engine.schedule(at, self._save, command)
        elif self._ordered.pop(command.job, None) is not None:
            self._effects.follow.append(_said(command, SaveWord.DECLINED))

    def go_on(self, run: Run, earlier: Run) -> None:
        """Start another run of a job where its last checkpoint ends."""
        cost = self._settings.restart_cost.draw(self._chance)
        self._effects.metrics.suspension_cost_s += cost * len(run.ranks)
        run.go_on_from(earlier, cost)

    def _save(self, command: SendSuspend) -> Sequence[Event]:
        """The safe point: the job stops and writes, unless it has ended by now."""
        if self._ordered.get(command.job) is not command:
            return ()
        del self._ordered[command.job]
        run, now = self._effects.runs.get(command.job), self._engine.now
        if run is None or run.over or run.number != command.run or run.end <= now:
            return ()
        run.save(now)
        self._effects.steps += 1
        cost = self._settings.checkpoint_cost.draw(self._chance)
        self._effects.metrics.suspension_cost_s += cost * len(run.ranks)
        begun, saved = _said(command, SaveWord.BEGUN), _said(command, SaveWord.SAVED, cost)
        if not cost:
            return (begun, saved)
        self._engine.schedule(now + cost, self._saved, (run, saved))
        return (begun,)

    @staticmethod
    def _saved(about: tuple[Run, SaveReported]) -> Sequence[Event]:
        run, saved = about
        return () if run.over else (saved,)

    def _leave(self, command: SendSuspend, run: Run) -> Sequence[Event]:
        if run.over or run.number != command.run:
            return ()
        run.finish(self._engine.now)
        if isinstance(run, EvolvingRun):
            self._effects.phases.ended(run)
        self._effects.metrics.counts["suspensions"] += 1
        self._effects.steps += 1
        exits = self._engine.machine.exits(run.ranks)
        return (ProcessesExited(command.job, command.run, FIRST_START, exits),)


def _said(command: SendSuspend, word: SaveWord, seconds: float = 0.0) -> SaveReported:
    return SaveReported(command.job, command.run, command.number, word, seconds=seconds)
