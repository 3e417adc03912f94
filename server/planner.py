"""Running the strategy: a fault in it costs one cycle, three in a row cost it its place."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from pliant.core.commands import RunStrategy
from pliant.core.events import PlanFailed, PlanReady
from pliant.core.scheduling import Plan
from pliant.strategies import Strategy, load_strategy

log = logging.getLogger(__name__)

FALLBACK = "fcfs"
FAULTS_ALLOWED = 3
#: A plan that took longer counts as a fault: nobody else is served meanwhile.
BUDGET_S = 5.0


class Planner:
    """Holds the strategy in force and its record of faults.

    Args:
        name: of the strategy.
        options: of the strategy.
        deadline_s: a plan that takes longer counts as a fault.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, object] | None = None,
        deadline_s: float = BUDGET_S,
    ) -> None:
        self.name = name
        self._deadline_s = deadline_s
        self._strategy: Strategy = load_strategy(name, options)
        self._faults = 0

    def run(self, order: RunStrategy) -> PlanReady | PlanFailed:
        """Ask for a plan; whatever goes wrong becomes PlanFailed."""
        begin = time.monotonic()
        try:
            plan: object = self._strategy.allocate_processors(order.view)
            fault = None if isinstance(plan, Plan) else f"returned {type(plan).__name__}, no Plan"
        except Exception as error:
            log.exception("strategy %s raised", self.name)
            fault = f"{type(error).__name__}: {error}"
        spent = time.monotonic() - begin
        if fault is None and spent > self._deadline_s:
            fault = f"took {spent:.1f} s, the deadline is {self._deadline_s:g} s"
        if fault is None and isinstance(plan, Plan):
            self._faults = 0
            return PlanReady(order.cycle, plan)
        self._faults += 1
        log.error("strategy %s, fault %d in a row: %s", self.name, self._faults, fault)
        return PlanFailed(order.cycle, str(fault))

    def fall_back(self) -> str | None:
        """Replace a strategy that failed too often; return what happened, for people."""
        if self._faults < FAULTS_ALLOWED or self.name == FALLBACK:
            return None
        text = f"strategy {self.name} failed {self._faults} times in a row; {FALLBACK} takes over"
        log.error("%s", text)
        self._strategy, self.name, self._faults = load_strategy(FALLBACK), FALLBACK, 0
        return text
