"""``pliant run`` outside of a job: live input and terminals, with real programs on a cluster."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import sysconfig
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusterkit.cluster import Cluster
from clusterkit.shared import running_cluster
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

RUN = [f"{sysconfig.get_path('scripts')}/pliant", "run"]
#: The same command, for a cluster with nodes on other hosts.
RUN_OVER_TLS = [
    sys.executable,
    "-c",
    "import sys\n"
    "from pliant.client.run import interactive, run_command\n"
    "interactive._is_local = lambda address: False\n"
    "sys.exit(run_command.main())\n",
]

SHELL = ["--pty", "sh"]


@pytest.fixture(name="shared", scope="module")
def _shared() -> Iterator[Cluster]:
    with running_cluster("fcfs", "kill_grace_s: 20.0\n", slots=3) as cluster:
        yield cluster


class Terminal:
    """A terminal of 30 rows and 90 columns, on which one command runs."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self.ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
        self.mode = termios.tcgetattr(self.theirs)
        take = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        self.process = subprocess.Popen(
            [sys.executable, "-c", take + "os.execv(sys.argv[1], sys.argv[1:])", *words],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            cwd=folder,
            start_new_session=True,
            env={**os.environ, "PS1": "ready> "},
        )

    def until(self, text: bytes, timeout: float = 60.0) -> bytes:
        """Return what appears up to a text."""
        found, end = b"", time.monotonic() + timeout
        while text not in found:
            assert time.monotonic() < end, found
            if select.select([self.ours], [], [], 0.5)[0]:
                found += os.read(self.ours, 1 << 16)
        return found

    def type(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def ended(self) -> int:
        """Return the exit code, and check that the terminal is as it was."""
        code = self.process.wait(timeout=60)
        assert termios.tcgetattr(self.theirs) == self.mode
        return code


@contextmanager
def on_terminal(words: list[str], folder: Path, run: list[str] = RUN) -> Iterator[Terminal]:
    terminal = Terminal([*run, *words], folder)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.ours)
        os.close(terminal.theirs)


def job_number(terminal: Terminal) -> int:
    """Return the number of the job whose shell is on a terminal."""
    terminal.until(b"ready> ")
    terminal.type(b"echo job=$PLIANT_JOB.\n")
    text = terminal.until(b".\r\nready> ")
    return int(text.rpartition(b"job=")[2].partition(b".")[0])


# -------------------------------------------------------------------- input


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("run", [RUN, RUN_OVER_TLS], ids=["local", "tls"])
def test_the_first_process_reads_a_pipe(tmp_path: Path, run: list[str]) -> None:
    content = os.urandom(5_000_000)
    program = 'test "$PMI_RANK" != 0 || sha256sum'
    done = subprocess.run(
        [*run, "-n", "4", "sh", "-c", program],
        cwd=tmp_path,
        input=content,
        capture_output=True,
        timeout=90,
        check=True,
    )
    assert done.stdout.split()[0].decode() == hashlib.sha256(content).hexdigest()
    assert done.stderr == b""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("cluster")
def test_input_and_output_alternate(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*RUN, "sh", "-c", "while read line; do echo got $line; done; echo end"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for word in (b"one", b"two"):
            process.stdin.write(word + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"got " + word + b"\n"
        process.stdin.close()
        assert process.stdout.read() == b"end\n"
    assert process.returncode == 0


@pytest.mark.usefixtures("cluster")
def test_a_program_need_not_read(tmp_path: Path) -> None:
    command = f"cat /dev/zero | {RUN[0]} run sh -c 'exit 4'; echo $?; {RUN[0]} run cat <&-; echo $?"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, timeout=90, check=True
    )
    assert done.stdout == b"4\n0\n"


def test_a_closed_output_cancels_the_job(cluster: Cluster, tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{RUN[0]} run yes | head -n 1"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=90,
        check=True,
    )
    assert done.stdout == b"y\n"
    assert b"Traceback" not in done.stderr
    assert cluster.client.jobs() == []


def test_the_input_ends_with_the_command(cluster: Cluster, tmp_path: Path) -> None:
    with subprocess.Popen(
        [*RUN, "sh", "-c", f"touch {tmp_path}/up; cat; echo end > {tmp_path}/end"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
    ) as process:
        wait_until((tmp_path / "up").exists, timeout=60)
        process.kill()
    wait_until((tmp_path / "end").exists, timeout=60)
    wait_until(lambda: cluster.client.jobs() == [], timeout=60)


# -------------------------------------------------------------------- terminals


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("run", [RUN, RUN_OVER_TLS], ids=["local", "tls"])
def test_a_shell_on_a_terminal(tmp_path: Path, run: list[str]) -> None:
    with on_terminal(["--pty", "bash", "--norc", "-i"], tmp_path, run) as terminal:
        terminal.until(b"ready> ")
        terminal.type(b"stty size; tty\n")
        assert b"30 90\r\n/dev/pts/" in terminal.until(b"/dev/pts/")
        terminal.resize(50, 132)
        terminal.type(b"until stty size | grep 132; do sleep 0.1; done\n")
        terminal.until(b"50 132")
        terminal.type(b"sleep 600\n")
        terminal.until(b"sleep 600\r\n")
        time.sleep(0.2)  # until bash has started it; earlier keys go to bash
        terminal.type(b"\x1a")
        terminal.until(b"Stopped")
        terminal.type(b"fg\n")
        terminal.until(b"sleep 600\r\n")
        time.sleep(0.2)
        terminal.type(b"\x03")
        terminal.until(b"ready> ")
        terminal.type(b"printenv PLIANT_INTERACTIVE || exit 7\n")
        terminal.until(b"FAILED")
        assert terminal.ended() == 7
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_with_processors(cluster: Cluster, tmp_path: Path) -> None:
    words = ["--pty", "-n", "4", "--type", "script", "sh"]
    with on_terminal(words, tmp_path) as terminal:
        number = job_number(terminal)
        assert cluster.client.job(number).processors == 4
        terminal.type(f"{RUN[0]} run sh -c 'echo rank=$PMI_RANK.' | sort\n".encode())
        terminal.until(b"rank=3.")
        terminal.type(b"exit\n")
        assert terminal.ended() == 0


def test_a_session_survives_the_server_and_ends_with_its_job(
    cluster: Cluster, tmp_path: Path
) -> None:
    with on_terminal(SHELL, tmp_path) as terminal:
        number = job_number(terminal)
        cluster.kill("server")
        terminal.type(b"echo still $((20 + 3))\n")
        terminal.until(b"still 23")
        cluster.up()
        cluster.client.cancel(number)  # the shell ignores SIGTERM, and gets SIGHUP
        terminal.until(b"CANCELLED")
        assert terminal.ended() != 0
    assert cluster.ranks(number) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_session_ends_with_its_command(cluster: Cluster, tmp_path: Path, number: int) -> None:
    with on_terminal(SHELL, tmp_path) as terminal:
        job = job_number(terminal)
        terminal.process.send_signal(number)
        if number == signal.SIGKILL:
            terminal.process.wait()
        else:
            terminal.until(b"CANCELLED")
            assert terminal.ended() == 128 + number
    cluster.wait_for(job, lambda job: job.final, "the end")
    assert cluster.ranks(job) == []


@pytest.mark.usefixtures("cluster")
def test_the_last_output_arrives(tmp_path: Path) -> None:
    with on_terminal(["--pty", "sh", "-c", "seq 1 50000; exit 3"], tmp_path) as terminal:
        lines = terminal.until(b"FAILED").split(b"\r\n")
        assert [int(line) for line in lines if line.isdigit()] == list(range(1, 50001))
        assert terminal.ended() == 3


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("words", [["-n", "4"], ["--array", "1-3"]])
def test_only_one_process_gets_a_terminal(tmp_path: Path, words: list[str]) -> None:
    with on_terminal(["--pty", *words, "sh"], tmp_path) as terminal:
        assert words[0].encode() in terminal.until(b"\n")
        assert terminal.ended() == 2
