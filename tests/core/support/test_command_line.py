from __future__ import annotations

import argparse
from importlib import import_module

import pytest

import pliant
from pliant.core.support.command_line import CommandParser, unknown_option

Capture = pytest.CaptureFixture[str]


def parser() -> CommandParser:
    made = CommandParser(prog="tool")
    made.add_argument("ids", nargs="*", type=int)
    made.add_argument("-a", "--all", action="store_true")
    made.add_argument("-n", "--number")
    made.add_argument("--pair", nargs=2)
    return made


@pytest.mark.parametrize(
    ("words", "unknown"),
    [
        ("-u root", "-u"),
        ("--user root", "--user"),
        ("--user=root", "--user"),
        ("3 --bogus", "--bogus"),
        ("-au 3", "-u"),
        ("-a 3", ""),
        ("-n4", ""),
        ("-an4x", ""),
        ("-an -4x", ""),
        ("-n -x 3", ""),
        ("--number=-x", ""),
        ("--pair -x -y 3", ""),
        ("--pair -x -y -z", "-z"),
        ("-5", ""),
        ("-", ""),
        ("-- -u", ""),
    ],
)
def test_the_first_unknown_option_is_found(words: str, unknown: str) -> None:
    assert unknown_option(parser(), words.split()) == unknown


def test_options_of_a_program_are_its_own() -> None:
    made = CommandParser(prog="tool")
    made.add_argument("-n")
    made.add_argument("command", nargs=argparse.REMAINDER)
    assert unknown_option(made, ["-n", "4", "program", "--bogus"]) == ""
    assert unknown_option(made, ["--bogus", "program"]) == "--bogus"


def test_a_similar_option_is_named(capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="2"):
        parser().parse_args(["--nummer", "4"])
    assert "unknown option --nummer; did you mean --number?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("unknown", "meant"), [("--nubmer", "--number"), ("--num", "--number"), ("--summer", "")]
)
def test_only_a_near_option_is_named(unknown: str, meant: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="2"):
        parser().parse_args([unknown])
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.partition("; ")[2] == (f"did you mean {meant}?" if meant else "")


@pytest.mark.parametrize(
    "command",
    [
        "client.commands.jobsub:main",
        "client.commands.jobctl:main",
        "client.commands.jobctl:main why",
        "client.accounting.jobacct:main",
        "client.cluster.up_down:up",
        "server.daemon:main",
        "nodectl.daemon:main",
        "simulator.cli:main",
    ],
)
def test_every_command_prints_the_version(command: str, capsys: Capture) -> None:
    place, *words = command.split()
    module, _, function = place.partition(":")
    with pytest.raises(SystemExit, match="0"):
        getattr(import_module(f"pliant.{module}"), function)([*words, "--version"])
    out, err = capsys.readouterr()
    assert out.endswith(f" {pliant.__version__}\n")
    assert err == ""


@pytest.mark.parametrize(
    "command",
    [
        "client.commands.jobctl:main -u why 3",
        "client.commands.jobctl:main why -u root",
        "client.commands.jobctl:main resize -u root 3 4",
        "client.commands.jobsub:main -u root program",
        "client.commands.jobsub:main -n 4 -u",
        "client.commands.nodestat:main -u root",
        "client.commands.node:main -u root drain",
        "client.commands.cli:main -u root",
        "client.cluster.up_down:up -u root",
        "client.cluster.up_down:down -u root",
        "client.demo.demo_command:main -u root",
        "client.gantt.gantt_command:main -u root",
        "server.daemon:main -u root",
        "nodectl.daemon:main -u root",
        "simulator.cli:main -u root",
        "simulator.experiments.experiment_command:main -u root list",
        "simulator.experiments.experiment_command:main run -u root",
    ],
)
def test_every_command_names_an_unknown_option(command: str, capsys: Capture) -> None:
    place, *words = command.split()
    module, _, function = place.partition(":")
    try:
        code = getattr(import_module(f"pliant.{module}"), function)(words)
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert "unknown option -u" in capsys.readouterr().err
