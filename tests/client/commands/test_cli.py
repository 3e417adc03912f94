from __future__ import annotations

from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

import pliant
from pliant.client.commands import cli
from pliant.client.commands.entry_points import GROUP, Command, find_commands
from testkit import fresh_modules

Capture = pytest.CaptureFixture[str]


def test_version(capsys: Capture) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"pliant {version('pliant')}\n"
    assert pliant.__version__ == version("pliant")


def test_help_lists_commands_with_a_line_each(capsys: Capture) -> None:
    assert cli.main(["--help"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["down", "End a cluster of your own and its running jobs."] in lines


def test_help_loads_no_command() -> None:
    loaded = fresh_modules("from pliant.client.commands.cli import main; main(['--help'])")
    slow = {"grpc", "rich", "sqlalchemy", "numpy", "msgspec", "yaml", "cryptography"}
    assert loaded & slow == set()


def test_wrong_usage(capsys: Capture) -> None:
    assert cli.main([]) == 2
    assert cli.main(["bogus"]) == 2
    assert "there is no command 'bogus'; there are: " in capsys.readouterr().err


def test_runs_the_one_that_is_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    entries = {
        "stat": Command("stat", "pliant.client.commands.jobstat", "main"),
        "gone": Command("gone", "pliant.nowhere", "main"),
        "deep": Command("deep", "pliant.no.where", "main"),
    }
    monkeypatch.setattr(cli, "find_commands", lambda: entries)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["stat", "--bogus"])
    assert cli.main(["gone"]) == 1
    assert "gone cannot be loaded" in capsys.readouterr().err
    assert cli.describe(entries["stat"]) == "List jobs, or show some of them."
    assert cli.describe(entries["gone"]) == cli.describe(entries["deep"]) == "(not installed)"


def test_commands_are_the_entry_points_that_are_installed() -> None:
    installed = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    found = {c.name: f"{c.module}:{c.attr}" for c in find_commands().values()}
    assert found == installed


def test_a_distribution_may_add_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = tmp_path / "extra-1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text(
        "[console_scripts]\nother = a.b:c\n\n"
        "[pliant.commands]\n# a note\nextra = extra.tool:run [x]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_commands()["extra"] == Command("extra", "extra.tool", "run")
    assert "up" in find_commands()
    assert "other" not in find_commands()
