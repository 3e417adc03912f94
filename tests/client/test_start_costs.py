"""Client commands load only what they need: they are started thousands of times.

The budgets in milliseconds are measured by ``benchmarks/bench_costs.py``, not here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testkit import loaded_modules

from .conftest import job

#: Packages that take longer to import than a command may take as a whole.
HEAVY = {"grpc", "google", "sqlalchemy", "numpy", "mpi4py", "msgspec", "yaml", "rich", "asyncio"}
HEAVY |= {"cryptography", "paramiko"}
#: Modules of the standard library that cost a request 0.5 to 7 ms each, and that it can do without.
SLOW = {"dataclasses", "inspect", "shutil", "asyncio", "subprocess", "typing", "locale", "pathlib"}
SLOW |= {"contextlib", "gettext", "math", "selectors", "socket", "struct"}
#: Modules of the core that bring the rest of the core along.
CORE = {
    f"pliant.core.{name}"
    for name in ("state_machine", "state.core_state", "model.jobs", "events", "commands")
}
PARTS = {f"pliant.{part}" for part in ("strategies", "simulator", "server", "nodectl", "appkit")}

COMMANDS = [
    ("jobsub", ["true"]),
    ("jobsub", ["-n", "1-8:pow2", "--prefer", "4", "--time", "2h", "--estimate", "1h", "true"]),
    ("jobsub", ["--when-cut-off", "stop-after=5m", "--export", "NONE,A=1", "./script.sh"]),
    ("jobstat", []),
    ("jobstat", ["--json", "1"]),
    ("nodestat", []),
    ("jobdel", ["1"]),
    ("jobctl", ["hold", "1"]),
    ("jobctl", ["resize", "1", "4"]),
    ("jobctl", ["why", "1"]),
    ("jobctl", ["history", "1"]),
]


def heavy(code: str) -> set[str]:
    loaded = loaded_modules(code)
    packages = {name.partition(".")[0] for name in loaded}
    return (packages & HEAVY) | (loaded & CORE) | (loaded & PARTS)


@pytest.mark.parametrize(("command", "words"), COMMANDS, ids=str)
def test_a_request_loads_no_large_library(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "script.sh"
    script.write_text("#!/bin/sh\n#JOB -n 4\n")
    script.chmod(0o755)
    server.answers = {
        "submit": {"id": 1},
        "jobs": {"jobs": [job()], "missing": [], "now": 1_700_000_100.0},
        "nodes": {"nodes": [], "strategy": "fcfs", "server": {}, "now": 0.0},
        "cancel": {"results": [{"id": 1, "ok": True}]},
        "why": {"text": ["it runs"], "facts": {}},
        "history": {"events": []},
    }
    code = (
        f"import sys; from pliant.client.commands.{command} import main; sys.exit(main({words!r}))"
    )
    assert heavy(code) == set()
    assert server.requests, "the command asked nothing"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("jobsub", ["true"]),
        ("jobstat", []),
        ("nodestat", []),
        ("jobdel", ["1"]),
        ("jobctl", ["hold", "1"]),
    ],
    ids=str,
)
def test_the_usual_requests_load_no_slow_module(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    server.answers = {
        "submit": {"id": 1},
        "jobs": {"jobs": [job()], "now": 1_700_000_100.0},
        "nodes": {"nodes": [], "strategy": "fcfs", "server": {}, "now": 0.0},
        "cancel": {"results": [{"id": 1, "ok": True}]},
    }
    code = (
        f"import sys; from pliant.client.commands.{command} import main; sys.exit(main({words!r}))"
    )
    assert loaded_modules(code) & SLOW == set()
    assert server.requests, "the command asked nothing"


HELP = [
    *(
        f"pliant.client.commands.{name}:main"
        for name in ("jobsub", "jobstat", "nodestat", "jobdel", "jobctl", "node", "cli")
    ),
    *(f"pliant.client.cluster.up_down:{name}" for name in ("up", "down")),
    "pliant.client.demo.demo_command:main",
    "pliant.client.gantt.gantt_command:main",
    "pliant.server.daemon:main",
    "pliant.nodectl.daemon:main",
    "pliant.simulator.cli:main",
    "pliant.simulator.experiments.experiment_command:main",
]


@pytest.mark.parametrize("entry", HELP)
def test_help_loads_no_large_library(entry: str) -> None:
    module, _, function = entry.partition(":")
    # `pliant --help` finds the source of each command, for which it imports the parts themselves.
    own = {
        part for part in PARTS if module.startswith(part) or module == "pliant.client.commands.cli"
    }
    assert heavy(f"from {module} import {function}; {function}(['--help'])") <= own


def test_pliant_finds_a_command_without_the_metadata_of_all_distributions() -> None:
    code = "from pliant.client.commands.cli import main; main(['node', '--help'])"
    assert "importlib.metadata" not in loaded_modules(code)


def test_a_controller_loads_neither_the_core_nor_large_libraries_that_it_does_not_use() -> None:
    loaded = loaded_modules("import pliant.nodectl.controller.controller")
    packages = {name.partition(".")[0] for name in loaded}
    assert loaded & CORE == set()
    assert packages & {"sqlalchemy", "numpy", "mpi4py", "cryptography", "rich", "yaml"} == set()


def test_checking_the_configuration_of_the_server_loads_no_database() -> None:
    code = "from pliant.server.daemon import main; main(['--check', '--strategy', 'fcfs'])"
    loaded = loaded_modules(code)
    assert "pliant.strategies.registry" in loaded
    assert not {name for name in loaded if name.partition(".")[0] in {"sqlalchemy", "grpc"}}
