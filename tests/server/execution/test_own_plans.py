"""No plan of a strategy of ours has a fault, whatever applications answer and talks take."""

from __future__ import annotations

from random import Random

import pytest

from pliant.core.model.views_and_plans import Availability, Plan, View, WaitingJob
from pliant.core.values.profit_contract import Contract
from pliant.core.values.sizes import parse_sizes
from pliant.simulator import Settings, SimJob, simulate
from pliant.simulator.inputs.costs import FREE, Cost
from pliant.strategies import Strategy, known_strategies, load_strategy
from pliant.strategies.interface.plan_check import find_fault

GRAMMARS = ["1", "3", "8", "1-8", "2-8:pow2", "2-16", "4-16:x2", "{1,2,5,9}"]


class Checked(Strategy):
    """Another strategy, whose plans are held against their views."""

    def __init__(self, inner: Strategy) -> None:
        self.inner, self.plans = inner, 0

    def is_available(self, job: WaitingJob, view: View) -> Availability:
        return self.inner.is_available(job, view)

    def allocate_processors(self, view: View) -> Plan:
        plan = self.inner.allocate_processors(view)
        assert find_fault(view, plan) is None
        self.plans += 1
        return plan


def jobs(draw: Random) -> list[SimJob]:
    made, now = [], 0.0
    for number in range(1, 41):
        now += draw.expovariate(1 / 15)
        sizes = parse_sizes(draw.choice(GRAMMARS))
        work = draw.expovariate(1 / 400) + 1
        deadline = Contract(draw.expovariate(1 / 900) + 1, draw.expovariate(1 / 1000))
        made.append(
            SimJob(
                number,
                round(now),
                work,
                sizes,
                sizes.max,
                estimate_s=work / sizes.max * draw.choice([1.0, 1.5, 3.0]),
                malleable=not sizes.fixed and draw.random() < 0.8,
                contract=deadline if draw.random() < 0.7 else None,
                priority=number % 3,
            )
        )
    return made


OPTIONS = [
    (name, {"agreement": agreement} if agreement else {})
    for name in known_strategies()
    for agreement in (("direct", "pool", "steal") if name.startswith("easy-") else ("",))
]


@pytest.mark.parametrize(("name", "options"), OPTIONS)
@pytest.mark.parametrize("answers", ["always", "random:0.6:partial", "pow2"])
def test_plans_of_ours_fit_their_views(name: str, options: dict[str, str], answers: str) -> None:
    strategy = Checked(load_strategy(name, options))
    cost = FREE if answers == "always" else Cost(1.0, 4.0)
    machine = Settings(16, strategy, answers=answers, node_size=4, negotiation_cost=cost)
    simulate(jobs(Random(3)), machine)
    assert strategy.plans > 40
