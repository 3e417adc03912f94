from __future__ import annotations

import pytest

from pliant.core.commands import RunStrategy
from pliant.core.events import PlanFailed, PlanReady
from pliant.core.model.views_and_plans import Plan, View
from pliant.core.values.ids import CycleId
from pliant.server.execution.planner import FALLBACK, FAULTS_ALLOWED, Planner
from pliant.strategies.equipartition import Equipartition


def test_a_strategy_that_keeps_failing_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Plan:
        raise RuntimeError("no idea")

    planner = Planner("equipartition")
    monkeypatch.setattr(Equipartition, "allocate_processors", fail)
    order = RunStrategy(CycleId(1), View(0.0, (), (), (), (), 0, 0))
    for _ in range(FAULTS_ALLOWED):
        assert planner.fall_back() is None
        failed = planner.run(order)
        assert isinstance(failed, PlanFailed)
        assert failed.reason == "RuntimeError: no idea"
    assert "failed 3 times in a row" in (planner.fall_back() or "")
    assert planner.name == FALLBACK
    assert isinstance(planner.run(order), PlanReady)
