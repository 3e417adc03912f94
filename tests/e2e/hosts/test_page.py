"""The commands of docs/several-hosts.md, typed in their order on two hosts of one machine."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testkit import ROOT

PAGE = ROOT / "docs" / "several-hosts.md"
_PROMPT = re.compile(r"(server|n7)\$ (.*)")
_ADDRESS, _PORT = "10.77.0.1", 7000
_PATIENCE_S = 60.0

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]


def steps() -> Iterator[tuple[str, str, list[str]]]:
    """Yield each command with its host and the lines that follow it on the page."""
    text = PAGE.read_text()
    lines = "".join(re.findall(r"^```console\n(.*?)^```$", text, re.M | re.S)).splitlines()
    typed: list[tuple[str, str, list[str]]] = []
    for line in lines:
        if found := _PROMPT.fullmatch(line):
            typed.append((found[1], found[2], []))
        else:
            typed[-1][2].append(line)
    yield from typed


def pattern(line: str) -> str:
    """Return what a line of the page allows: other texts for dots, other dates and spaces."""
    escaped = re.escape(line).replace("…", ".*")
    escaped = re.sub(r"\d{4}\\-\d\d\\-\d\d", r"\\d{4}-\\d\\d-\\d\\d", escaped)
    return re.sub(r"(\\ )+", " +", escaped)


class Hosts:
    """State folders of two hosts, with the daemons that were started there."""

    def __init__(self, base: Path, port: int) -> None:
        self.base, self.port, self.token = base, port, ""
        self.daemons = ExitStack()
        for host in ("server", "n7"):
            (base / host).mkdir(mode=0o700, parents=True)

    def type(self, host: str, command: str, expected: list[str]) -> None:
        """Run a command, again and again until it prints what the page shows."""
        command = self._here(command)
        if command.split()[:2] in (["pliant", "server"], ["pliant", "nodectl"]):
            self._start(host, command)
            return
        wanted = "\n".join(map(pattern, map(self._here, expected)))
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=self.base / host,
                env=self._environment(host),
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            told = (done.stdout + done.stderr).rstrip("\n")
            if "pliant cluster token" in command:
                self.token = done.stdout.strip()
            if done.returncode == 0 and re.fullmatch(wanted, told):
                return
            # Commands that only show something wait for the daemons, and so does the end of a
            # roll-over, which fails until then.
            assert time.monotonic() < deadline, f"{command}:\n{told}\nexpected:\n{wanted}"
            assert command.split()[0] != "pliant" or done.returncode or "nodes" in command, told
            time.sleep(0.5)

    def _start(self, host: str, command: str) -> None:
        log = (self.base / f"{host}.log").open("ab")
        process = subprocess.Popen(
            shlex.split(command),
            cwd=self.base / host,
            env=self._environment(host),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        log.close()
        self.daemons.callback(process.wait, timeout=60)
        self.daemons.callback(process.terminate)
        if host == "server":
            addresses = self.base / "server" / "run" / "cluster.addresses"
            deadline = time.monotonic() + _PATIENCE_S
            while not addresses.exists():
                assert time.monotonic() < deadline, (self.base / "server.log").read_text()
                time.sleep(0.1)

    def _here(self, text: str) -> str:
        for number in range(3):
            text = text.replace(f":{_PORT + number}", f":{self.port + number}")
        return text.replace(_ADDRESS, "127.0.0.1").replace(
            "join pliantjoin1x…", f"join {self.token}"
        )

    def _environment(self, host: str) -> dict[str, str]:
        state = self.base / host
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PLIANT_STATE_DIR": str(state),
            "PLIANT_RUN_DIR": str(state / "run"),
        }


def three_free_ports() -> int:
    """Return the first of three consecutive ports that are free now."""
    for first in range(20_000 + os.getpid() % 9_000, 60_000, 3):
        with ExitStack() as held:
            try:
                for port in range(first, first + 3):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports")


def test_what_is_typed_on_the_page(state_dir: Path) -> None:
    hosts = Hosts(state_dir.parent / "hosts", three_free_ports())
    with hosts.daemons:
        for host, command, expected in steps():
            hosts.type(host, command, expected)
    log = (hosts.base / "server.log").read_text()
    assert "Traceback" not in log
