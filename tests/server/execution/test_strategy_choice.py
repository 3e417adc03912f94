"""Another strategy while the server runs: checked, recorded, kept over kill -9."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from pliant.server.execution.strategy_choice import (
    StrategyChoice,
    check_choice,
    stored_row,
    strategy_in_force,
)
from pliant.server.execution.strategy_process import StrategyRefusedError
from serverkit import Server
from testkit import wait_until

CONFIGURED = StrategyChoice("equipartition", {})
CHOSEN = StrategyChoice("easy-avg", {"agreement": "pool"}, "ann")


def meta(choice: StrategyChoice, configured: StrategyChoice) -> dict[str, str]:
    values: Any = stored_row(choice, configured).values
    return {values["key"]: values["value"]}


def test_a_restart_keeps_the_choice() -> None:
    assert strategy_in_force({}, CONFIGURED) == CONFIGURED
    assert strategy_in_force(meta(CHOSEN, CONFIGURED), CONFIGURED) == CHOSEN


@pytest.mark.parametrize(
    "configured",
    [StrategyChoice("sjf", {}), StrategyChoice("equipartition", {"max-pass-over": 3})],
)
def test_another_configuration_counts_again(configured: StrategyChoice) -> None:
    assert strategy_in_force(meta(CHOSEN, CONFIGURED), configured) == configured


def test_a_choice_that_cannot_be_loaded_any_more_is_dropped() -> None:
    gone = StrategyChoice("of-a-package-that-left", {}, "ann")
    assert strategy_in_force(meta(gone, CONFIGURED), CONFIGURED) == CONFIGURED
    for text in ("", "[]", json.dumps({"name": "fcfs"})):
        assert strategy_in_force({"strategy": text}, CONFIGURED) == CONFIGURED


def test_only_the_configuration_names_code_that_is_not_installed(tmp_path: Path) -> None:
    made = tmp_path / "made"
    code = StrategyChoice("subprocess:getoutput", {"cmd": f"touch {made}"}, "ann")
    with pytest.raises(StrategyRefusedError, match="not installed"):
        check_choice(code, CONFIGURED)
    assert strategy_in_force(meta(code, CONFIGURED), CONFIGURED) == CONFIGURED
    assert not made.exists()


@pytest.mark.cluster
def test_an_operator_uses_another_strategy(server: Server) -> None:
    node = server.controller(slots=4).welcome()
    with server.user() as user:
        configured = user.do("strategies")["strategy"]
        for fields, says in (
            ({"strategy": "nope"}, "not installed"),
            ({"strategy": 7}, "expected the name"),
            ({"strategy": "easy-avg", "options": {"agreement": "banana"}}, "banana"),
            ({"strategy": "fcfs", "options": {"no-such": 1}}, "no-such"),
            ({"strategy": "fcfs", "options": {"a": [1]}}, "expected values"),
        ):
            answer = user.ask("strategy", **fields)
            assert says in str(answer["error"])
        assert user.do("strategies")["strategy"] == configured
        user.do("strategy", strategy="easy-avg", options={"agreement": "pool"})
        found = user.do("strategies")
        assert (found["strategy"], found["options"]) == ("easy-avg", {"agreement": "pool"})
        assert user.do("nodes")["strategy"] == "easy-avg"
        kinds = [event["kind"] for event in user.do("history")["events"]]
        assert kinds.count("strategy.replaced") == 1
        wait_until(
            lambda: any(e["operation"] == "strategy" for e in user.do("audit")["events"]),
            what="the record of the change",
        )
    server.stop(signal.SIGKILL)
    node.close()
    server.start()
    with server.user() as user:
        found = user.do("strategies")
        assert (found["strategy"], found["options"]) == ("easy-avg", {"agreement": "pool"})
