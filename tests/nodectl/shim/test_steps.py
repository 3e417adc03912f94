"""Steps of a script: where they run, what they print, how they end, and what they leave behind."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from elfkit import write_elf
from nodekit import FakeServer, World
from pliant.nodectl.host import procfs
from pliant.protos import node_pb2 as wire
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("node")]

COMMAND = "pliant.client.run.run_command"

#: Defines the command that starts a step.
HEAD = f'step() {{ "{sys.executable}" -m {COMMAND} "$@"; }}\n'


#: Sends a line to the socket, and waits for the end of the connection.
RAW = """
import os, socket, sys
path = os.environ["PLIANT_STEP_SOCKET"]
os.chdir(os.path.dirname(path))
link = socket.socket(socket.AF_UNIX)
link.connect(os.path.basename(path))
socket.send_fds(link, [sys.argv[1].encode() + b"\\n"], [0])
print("closed" if not link.recv(100) else "answered")
"""


def script(folder: Path, text: str, processors: int = 3) -> World:
    path = folder / "job.sh"
    path.write_text(HEAD + text)
    return World(
        ["sh", str(path)],
        folder / "out",
        type="script",
        directory=str(folder),
        placement={"n1": list(range(processors))},
    )


def output(world: World, server: FakeServer) -> list[str]:
    """Run a script that ends with 0, and return the lines of its output."""
    world.start(server)
    ends = world.ends(server)
    text = (world.output).read_text()
    assert [end.code for end in ends] == [0] * len(ends), text
    return text.splitlines()


def test_a_step_has_all_processors_unless_it_names_fewer(
    server: FakeServer, tmp_path: Path
) -> None:
    text = "step sh -c 'echo $PMI_RANK/$PMI_SIZE $PLIANT_PROCESSOR'\necho then\n"
    lines = output(script(tmp_path, text + "step -n 1 printenv PLIANT_PROCESSORS\n"), server)
    assert sorted(lines[:3]) == ["0/3 0", "1/3 1", "2/3 2"]
    assert lines[3:] == ["then", "0"]


def test_steps_run_side_by_side_and_wait_for_processors(server: FakeServer, tmp_path: Path) -> None:
    """The first two steps wait for each other; the third needs the processors of both."""
    meet = "touch $0.$1; until [ -e $0.$2 ]; do sleep 0.01; done"
    text = (
        f"step -n 1 sh -c '{meet}' m a b & step -n 2 sh -c '{meet}' m b a &\n"
        "until [ -e m.a ] && [ -e m.b ]; do sleep 0.01; done\n"
        "step -n 3 printenv PLIANT_PROCESSOR; wait\n"
    )
    assert sorted(output(script(tmp_path, text), server)) == ["0", "1", "2"]


def test_the_exit_code_of_a_step(server: FakeServer, tmp_path: Path) -> None:
    text = (
        "step -n 1 sh -c 'exit 9'; echo code $?\n"
        "step -n 2 sh -c 'test $PMI_RANK = 0 || kill -SEGV $$; sleep 600'; echo code $?\n"
        "step -n 1 ./missing; echo code $?\n"
    )
    lines = output(script(tmp_path, text), server)
    codes = [line for line in lines if line.startswith("code")]
    assert codes == ["code 9", f"code {128 + signal.SIGSEGV}", "code 127"]


def test_the_end_of_a_script_reports_its_steps(server: FakeServer, tmp_path: Path) -> None:
    text = (
        "step -n 2 sh -c 'exit 9'; step -n 1 true; step -n 1 sh -c 'kill -SEGV $$'\n"
        "step -n 2 sh -c 'touch up; sleep 600' &\n"
        "until [ -e up ]; do sleep 0.01; done\n"
    )
    world = script(tmp_path, text)
    world.start(server)
    first, *others = sorted(world.ends(server), key=lambda end: end.rank)
    found = [(s.number, s.name, s.processors, s.code, s.signal) for s in first.steps]
    assert found == [
        (1, "sh", 2, 9, 0),
        (2, "true", 1, 0, 0),
        (3, "sh", 1, 0, signal.SIGSEGV),
        (4, "sh", 2, 0, signal.SIGTERM),
    ]
    assert all(0 < step.start <= step.end <= first.at for step in first.steps)
    assert not any(end.steps for end in others)


def test_a_step_reads_the_input_of_its_command(server: FakeServer, tmp_path: Path) -> None:
    assert output(script(tmp_path, "echo hello | step -n 2 cat\n"), server) == ["hello"]


def test_a_signal_to_the_command_reaches_the_ranks(server: FakeServer, tmp_path: Path) -> None:
    trap = 'trap "echo got; exit 5" USR1; touch up; while :; do sleep 0.01; done'
    text = (
        f"step -n 1 sh -c '{trap}' & pid=$!\n"
        "until [ -e up ]; do sleep 0.01; done\n"
        "kill -USR1 $pid; wait $pid; echo code $?\n"
    )
    # The function runs in a subshell, so the command replaces it.
    world = script(tmp_path, text.replace("step -n", f"{sys.executable} -m {COMMAND} -n"))
    lines = output(world, server)
    assert "got" in lines  # the shell of the rank may also report its `sleep`
    assert lines[-1] == "code 5"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("-n 4 true", "-n 4 is more than the 3 processors"),
        ("-n 2 ./solver", "libmpi.so.40"),
        ("-n 1 true $(printf '%0100000d ' 1 2 3 4 5 6)", "the limit is"),
    ],
)
def test_steps_that_are_refused(server: FakeServer, tmp_path: Path, words: str, text: str) -> None:
    write_elf(tmp_path / "solver", "libmpi.so.40")
    lines = output(script(tmp_path, f"step {words}; echo code $?\n"), server)
    assert text in lines[0]
    assert lines[-1] == "code 1"


def test_a_step_leaves_nothing_behind(server: FakeServer, tmp_path: Path) -> None:
    text = "step -n 1 sh -c '(setsid sleep 600 & echo $! > left); :'\n"
    # Not a process that has ended, and that its shim has not waited for yet.
    text += "grep -h '^State:[[:space:]]*[^XZ]' /proc/$(cat left)/status 2> /dev/null; true\n"
    assert output(script(tmp_path, text), server) == []


def test_steps_end_with_their_script(server: FakeServer, tmp_path: Path) -> None:
    text = "step -n 2 sh -c 'echo $$ > pid.$PMI_RANK; exec sleep 600' &\n"
    text += "until [ -s pid.0 ] && [ -s pid.1 ]; do sleep 0.01; done; trap '' TERM\n"
    output(script(tmp_path, text), server)
    pids = [int((tmp_path / f"pid.{rank}").read_text()) for rank in (0, 1)]
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_the_end_of_the_command_ends_the_step(server: FakeServer, tmp_path: Path) -> None:
    text = (
        f"{sys.executable} -m {COMMAND} -n 3 sh -c 'echo $$ > pid.$PMI_RANK; exec sleep 600' &\n"
        "until [ -s pid.0 ] && [ -s pid.2 ]; do sleep 0.01; done\n"
        "kill -KILL $!\n"
        "step -n 3 true; echo code $?\n"
    )
    assert output(script(tmp_path, text), server)[-1] == "code 0"


def test_cancelling_the_job_ends_its_steps(server: FakeServer, tmp_path: Path) -> None:
    world = script(tmp_path, "step -n 1 sh -c 'echo $$ > pid; exec sleep 600'\n", processors=1)
    world.start(server)
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    server.send("n1", wire.NodeOrder(kill=wire.Kill(job=world.job, run=1, grace_s=5.0)))
    world.ends(server)
    stat = procfs.read_stat(pid)
    assert stat is None or stat.state in procfs.ENDED_STATES


def test_damaged_requests_end_only_their_connection(server: FakeServer, tmp_path: Path) -> None:
    text = (
        'for line in "no json" "[]" "{}" "{\\"argv\\": 5, \\"size\\": []}"; do\n'
        f'"{sys.executable}" -c \'{RAW}\' "$line"; done\nstep -n 1 echo fine\n'
    )
    assert output(script(tmp_path, text), server) == ["closed"] * 4 + ["fine"]


def test_an_mpi_program_as_a_step(server: FakeServer, tmp_path: Path) -> None:
    program = "from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(1))"
    (tmp_path / "program.py").write_text(program)
    text = f"step -n 2 {sys.executable} program.py\nstep -n 3 {sys.executable} program.py\n"
    assert output(script(tmp_path, text), server) == ["2", "2", "3", "3", "3"]
    assert not [name for name in os.listdir("/dev/shm") if ".s1" in name]
