"""Ctrl-C at any moment and a disk without room: at most one line, never a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

#: Interrupted as by Ctrl-C while the module is still being imported.
EARLY = """
import builtins, sys
real = builtins.__import__
def interrupted(name, *rest, **more):
    if name in ("typing", "pliant.client.terminal.output"):  # the first that takes time
        raise KeyboardInterrupt
    return real(name, *rest, **more)
builtins.__import__ = interrupted
import pliant.client.{module}
"""

COMMANDS = ["cli", "jobctl", "jobdel", "jobstat", "jobsub", "node", "nodestat"]
MODULES = [
    *(f"commands.{name}" for name in COMMANDS),
    "cluster.up_down",
    "demo.demo_command",
    "gantt.gantt_command",
]


@pytest.mark.parametrize("module", MODULES)
def test_an_early_interrupt_says_nothing(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EARLY.format(module=module)], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_other_errors_keep_their_traceback() -> None:
    code = "import pliant.client.terminal.suppress_interrupt_traceback; raise ValueError('x')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.stderr.endswith(b"ValueError: x\n")


def test_output_that_finds_no_room() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pliant.client.commands.cli", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"pliant: output: no space left on device\n")
