from __future__ import annotations

from importlib.metadata import EntryPoint, version

import pytest

from pliant.client import cli
from testkit import fresh_modules

Capture = pytest.CaptureFixture[str]


def test_version(capsys: Capture) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"pliant {version('pliant')}\n"


def test_help_lists_commands_with_a_line_each(capsys: Capture) -> None:
    assert cli.main(["--help"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["up", "Start a cluster on this machine: a server and node controllers."] in lines
    assert ["down", "Take the cluster on this machine down."] in lines


def test_help_loads_no_command() -> None:
    loaded = fresh_modules("from pliant.client.cli import main; main(['--help'])")
    assert loaded & {"grpc", "rich", "sqlalchemy", "numpy", "msgspec", "yaml"} == set()


def test_wrong_usage(capsys: Capture) -> None:
    assert cli.main([]) == 2
    assert cli.main(["bogus"]) == 2
    assert "there is no command 'bogus'; there are: " in capsys.readouterr().err


def test_runs_the_one_that_is_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    entries = {
        "stat": EntryPoint("stat", "pliant.client.jobstat:main", cli.GROUP),
        "gone": EntryPoint("gone", "pliant.nowhere:main", cli.GROUP),
        "deep": EntryPoint("deep", "pliant.no.where:main", cli.GROUP),
    }
    monkeypatch.setattr(cli, "_commands", lambda: entries)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["stat", "--bogus"])
    assert cli.main(["gone"]) == 1
    assert "gone cannot be loaded" in capsys.readouterr().err
    assert cli.describe(entries["stat"]) == "List jobs."
    assert cli.describe(entries["gone"]) == cli.describe(entries["deep"]) == "(not installed)"
