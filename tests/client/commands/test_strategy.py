from __future__ import annotations

import json
from typing import Any

import pytest

from pliant.client.commands.strategy import main

Capture = pytest.CaptureFixture[str]

ANSWER = {
    "strategy": "easy-avg",
    "options": {"agreement": "pool"},
    "strategies": [
        {"name": "easy-avg", "options": [{"name": "agreement"}]},
        {"name": "fcfs", "options": []},
    ],
}


def test_the_strategy_in_force_is_shown(server: Any, capsys: Capture) -> None:
    server.answers["strategies"] = ANSWER
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert "easy-avg with agreement=pool" in printed
    assert "fcfs" in printed
    assert main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out)["strategy"] == "easy-avg"


def test_another_strategy_is_used(server: Any, capsys: Capture) -> None:
    server.answers["strategy"] = {"message": "strategy fcfs replaces easy-avg"}
    assert main(["fcfs", "-o", "requests=first"]) == 0
    assert "fcfs replaces" in capsys.readouterr().out
    asked = server.requests[-1]
    assert (asked["strategy"], asked["options"]) == ("fcfs", {"requests": "first"})


@pytest.mark.parametrize("words", [["-o", "a=b"], ["fcfs", "-o", "a"], ["fcfs", "more"]])
def test_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
