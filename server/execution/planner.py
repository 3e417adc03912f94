"""Run the strategy, and replace a strategy that fails three times in a row.

After a single failure there is no plan in this scheduling pass, and the next pass is normal.

Strategies of Pliant run in the execute thread. Others run in a process that can be killed.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping

from pliant.core.commands import RunStrategy
from pliant.core.events import PlanFailed, PlanReady
from pliant.core.model.views_and_plans import Plan
from pliant.core.values.ids import CycleId
from pliant.server.execution.strategy_process import StrategyProcess, StrategyProcessError
from pliant.server.support.measurements import Measurements
from pliant.strategies import Strategy, is_own, load_strategy
from pliant.strategies.interface.plan_check import find_fault

log = logging.getLogger(__name__)

FALLBACK = "fcfs"
FAULTS_ALLOWED = 3
#: A plan that took longer counts as a fault, because the execute thread waits for it. Seconds.
DEADLINE_S = 5.0


class Planner:
    """Runs the configured strategy, and counts its failures.

    Args:
        name: the name of the strategy.
        options: the options of the strategy.
        deadline_s: if the strategy needs longer for a plan, this counts as a failure.
        measurements: receives how long the strategy needed for each plan, and its failures.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, object] | None = None,
        deadline_s: float = DEADLINE_S,
        measurements: Measurements | None = None,
    ) -> None:
        self._measurements = measurements or Measurements()
        self._deadline_s = deadline_s
        self._process: StrategyProcess | None = None
        self._strategy: Strategy | None = None
        self._faults = 0
        #: Consecutive faults before the last plan, which may still turn out to be a fault.
        self._faults_before = 0
        self.replace(name, options)

    def replace(self, name: str, options: Mapping[str, object] | None = None) -> None:
        """Use another strategy from the next plan on. The present one stays if this fails.

        Raises:
            UnknownStrategyError: there is no such strategy, or it cannot be made.
            OptionError: an option is wrong.
        """
        if is_own(name):
            strategy: Strategy | None = load_strategy(name, options)
            process = None
        else:
            strategy, process = None, StrategyProcess(name, options or {})
        self.close()
        self._strategy, self._process = strategy, process
        self.name, self.options = name, options
        self._faults = self._faults_before = 0

    def run(self, order: RunStrategy) -> PlanReady | PlanFailed:
        """Let the strategy make a plan, and return an event with the plan.

        If the strategy fails or needs too long, the event is `PlanFailed` and has the reason.
        """
        begin = time.monotonic()
        try:
            plan, fault = self._plan(order)
        except StrategyProcessError as error:
            fault = str(error)
        except Exception as error:
            log.exception("strategy %s raised", self.name)
            fault = f"{type(error).__name__}: {error}"
        spent = time.monotonic() - begin
        self._measurements.observe("pass_seconds", spent, self.name)
        if fault is None and spent > self._deadline_s:
            fault = f"took {spent:.1f} s, the deadline is {self._deadline_s:g} s"
        if fault is None and isinstance(plan, Plan):
            self._faults_before, self._faults = self._faults, 0
            return PlanReady(order.cycle, plan)
        return self._failed(order.cycle, str(fault))

    def reject_plan(self, cycle: CycleId, fault: str) -> PlanFailed:
        """Count a failure of the strategy, because the core could not carry out its plan.

        Return the event that reports this to the core.

        Args:
            cycle: the number of the scheduling pass in which the plan was made.
            fault: why the plan could not be carried out.
        """
        self._faults = self._faults_before
        return self._failed(cycle, fault)

    def _failed(self, cycle: CycleId, fault: str) -> PlanFailed:
        self._faults += 1
        self._measurements.count("pass_failures", self.name)
        log.error("strategy %s, fault %d in a row: %s", self.name, self._faults, fault)
        return PlanFailed(cycle, fault)

    def _plan(self, order: RunStrategy) -> tuple[object, str | None]:
        """Return the plan of the strategy, and why the plan is invalid: None if it is valid."""
        view = order.view
        if self._process is not None:
            plan = self._process.plan(view, self._deadline_s, order.outcomes)
            fault = find_fault(view, plan)
            if fault is not None:
                self._process.restart()
            return plan, fault
        assert self._strategy is not None
        own: object = self._strategy.plan(view, order.outcomes)
        if not isinstance(own, Plan):
            return own, f"returned {type(own).__name__}, no Plan"
        if own.memory != view.memory:
            json.dumps(own.memory)  # raises if it could not be stored
        return own, find_fault(view, own)

    def close(self) -> None:
        """End the strategy's process, if it has one."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def fall_back(self) -> str | None:
        """Replace the strategy by ``fcfs`` if it has failed `FAULTS_ALLOWED` times in a row.

        Returns:
            A sentence that reports the replacement; None if the strategy stays.
        """
        if self._faults < FAULTS_ALLOWED or self.name == FALLBACK:
            return None
        text = f"strategy {self.name} failed {self._faults} times in a row; {FALLBACK} takes over"
        log.error("%s", text)
        self.replace(FALLBACK)
        return text
