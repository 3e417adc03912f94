"""The progress of a deployment: rows on a terminal, lines in a pipe, nothing with `--json`."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from deploykit.ports import ADDRESS, free_ports
from pliant.deploy.rollout.terminal_view import TerminalView, terminal_view
from sshkit import SshDaemon, missing_programs

HOSTILE = "\x1b]0;owned\x07\x1b[2J[red]evil"


def console(height: int = 10) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=80, height=height, color_system=None
    )


def drawn(view: TerminalView, height: int = 10) -> list[str]:
    """Return the lines of the view without blanks at their ends."""
    target = console(height)
    target.print(view.render())
    file = target.file
    assert isinstance(file, io.StringIO)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_a_row_has_the_present_step_and_both_times() -> None:
    now = 0.0
    view = TerminalView(["n1", "n2"], console(), lambda: now)
    view.step("n1", "connect and look")
    now = 3.0
    view.wait("n1")
    view.begin("n1", 2)
    view.step("n1", "install")
    now = 70.0
    first, second, counts = drawn(view)
    assert first.startswith("n1 ")
    assert first.endswith("0/2 1:10 install (1:07)")
    assert second.startswith("n2")
    assert second.endswith("waits")
    assert counts == "0 of 2 hosts done"
    view.wait("n1")
    view.end("n1", "done")
    view.step("n2", "connect and look")
    view.fail("n2", "disk space")
    view.end("n2", "FAILED")
    first, second, counts = drawn(view)
    assert first.endswith("2/2 1:10 done")
    assert second.endswith("FAILED: disk space")
    assert counts == "1 of 2 hosts done, 1 failed"


def test_a_small_terminal_shows_the_hosts_at_work_and_in_the_end_all() -> None:
    hosts = [f"n{number}" for number in range(1, 21)]
    view = TerminalView(hosts, console(height=6))
    view.step("n20", "install")
    view.fail("n19", "connect")
    *rows, counts = drawn(view, height=6)
    assert [row.split()[0] for row in rows] == ["n20", "n19", "n1", "n2"]
    assert counts == "0 of 20 hosts done, 1 failed"
    view.is_closed = True
    assert [row.split()[0] for row in drawn(view, height=6)] == hosts


def test_texts_reach_the_terminal_without_control_characters() -> None:
    target = console()
    with terminal_view(["n1"], target) as view:
        view.step("n1", HOSTILE)
        view.fail("n1", HOSTILE)
    file = target.file
    assert isinstance(file, io.StringIO)
    assert "\x1b]0" not in file.getvalue()
    assert "\x1b[2J" not in file.getvalue()
    assert "\\x1b]0;owned\\x07\\x1b[2J[red]evil" in file.getvalue()


@pytest.fixture
def hosts_file(tmp_path: Path) -> Iterator[Path]:
    """Yield the file of a host with a hostile interpreter, and of one that does not answer."""
    pytest.importorskip("paramiko", reason="needs paramiko (extra deploy)")
    sshd = SshDaemon(tmp_path / "sshd")
    sshd.start()
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nprintf '{HOSTILE}\\n' >&2; exit 1\n")
    python.chmod(0o755)
    file = tmp_path / "hosts.yaml"
    file.write_text(
        f"cluster: blue\nlisten: {ADDRESS}:{free_ports(3)}\nhelper: false\nservice: plain\n"
        f"key: {sshd.key}\nknown_hosts: {sshd.known_hosts}\nhosts:\n"
        f"  head: {{role: server, address: {ADDRESS}, port: {sshd.port}, python: {python}}}\n"
        f"  n1: {{address: {ADDRESS}, port: {free_ports(1)}}}\n"
    )
    try:
        yield file
    finally:
        sshd.stop()


@pytest.mark.cluster
@pytest.mark.skipif(bool(missing_programs()), reason=f"{missing_programs()} is not installed")
def test_the_command_on_a_terminal_and_in_a_pipe(hosts_file: Path) -> None:
    call = "import sys; from pliant.deploy.deploy_command import main; sys.exit(main())"
    command = [sys.executable, "-c", call, str(hosts_file), "--check"]
    plain = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert plain.returncode == 1, plain.stderr
    assert "\x1b" not in plain.stdout
    assert sorted(plain.stdout.splitlines()[:2]) == [
        "head: connect and look",
        "n1: connect and look",
    ]
    record = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, check=False, timeout=300
    )
    assert {each["outcome"] for each in json.loads(record.stdout)} == {"failed"}

    shown = on_terminal(command)
    assert "FAILED: connect" in shown
    assert "FAILED: probe" in shown
    for forbidden in ("\x1b]0", "\x07", "\x1b[2J"):
        assert forbidden not in shown
    problems = [line for line in plain.stdout.splitlines() if line.startswith(("head: p", "n1: c"))]
    assert len([line for line in problems if "; " in line]) == 2
    assert "n1: connect: " in shown
    assert "\\x1b]0;owned" in shown


def on_terminal(command: list[str]) -> str:
    """Return what a command writes to a terminal."""
    outer, inner = pty.openpty()
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=inner,
            stderr=inner,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "200", "LINES": "20"},
        ) as process:
            os.close(inner)
            written = b""
            try:
                while block := os.read(outer, 1 << 16):
                    written += block
            except OSError:  # the command has ended and closed its terminal
                pass
            assert process.wait(300) == 1
    finally:
        os.close(outer)
    return written.decode()
