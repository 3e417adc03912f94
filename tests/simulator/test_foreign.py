"""Strategies of others on the command line: what they print, and that they exit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pliant.simulator.cli import main
from pliant.simulator.experiments.running import worker

THEIRS = """
import sys
from pliant.strategies.queueing_presets import fcfs

def prints():
    made = fcfs()
    class Prints(type(made)):
        def allocate_processors(self, view):
            print("free:", view.free)
            return super().allocate_processors(view)
    made.__class__ = Prints
    return made

def leaves():
    made = fcfs()
    class Leaves(type(made)):
        def allocate_processors(self, view):
            sys.exit(0)
    made.__class__ = Leaves
    return made

def is_gone():
    sys.exit(0)
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"theirs_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(THEIRS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def simulate(theirs: str, attribute: str) -> int:
    return main(["--workload", "downey:jobs=3", "--strategy", f"{theirs}:{attribute}", "--json"])


def test_what_a_strategy_prints_is_none_of_the_results(
    theirs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(theirs, "prints") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["completed"] == 3
    assert err.startswith("free: ")


def test_nor_of_an_experiment_s(theirs: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"workload": "downey", "jobs": 3, "strategy": f"{theirs}:prints"}
    assert worker.answer({"spec": spec, "seed": 1})["metrics"]["completed"] == 3
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("attribute", "text"),
    [("leaves", "raised SystemExit at 0 s: 0"), ("is_gone", "cannot be loaded: SystemExit: 0")],
)
def test_a_strategy_does_not_end_the_simulator(
    theirs: str, attribute: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(theirs, attribute) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert text in err
