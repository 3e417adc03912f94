"""Steps of a script on several nodes: their shims talk through controllers and server."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from nodekit import FakeServer, Node, World
from pliant.protos import node_pb2 as wire
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("node", "other_node")]

COMMAND = f'"{sys.executable}" -m pliant.client.run.run_command'
AGENT = f'"{sys.executable}" -m pliant.client.run.launch_agent'


def script(folder: Path, text: str) -> World:
    """Return a script with two processors on each of two nodes."""
    path = folder / "job.sh"
    path.write_text(text.replace("STEP", COMMAND))
    return World(
        ["sh", str(path)],
        folder / "out",
        type="script",
        directory=str(folder),
        placement={"n1": [0, 1], "n2": [4, 5]},
    )


def finish(world: World, server: FakeServer) -> list[str]:
    """Wait for the end of a script, which must be 0; return the lines of its output."""
    wait_until(lambda: (world.name, 0) in server.exits, timeout=60)
    server.send("n2", wire.NodeOrder(kill=wire.Kill(job=world.job, run=1, grace_s=5.0)))
    ends = world.ends(server)
    text = world.output.read_text()
    assert [end.code for end in ends] == [0] * len(ends), text
    return text.splitlines()


def test_a_step_on_all_nodes(server: FakeServer, tmp_path: Path) -> None:
    world = script(
        tmp_path,
        "STEP sh -c 'echo $PMI_RANK $PLIANT_NODE $PLIANT_PROCESSOR >&$((1 + PMI_RANK % 2))'\n",
    )
    world.start(server)
    assert sorted(finish(world, server)) == ["0 n1 0", "1 n1 1", "2 n2 4", "3 n2 5"]


def test_an_mpi_program_on_two_nodes(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank))"
    )
    world = script(tmp_path, f"STEP {sys.executable} program.py\n")
    world.start(server)
    assert finish(world, server) == ["6"] * 4


def test_exit_codes_and_signals_cross_nodes(server: FakeServer, tmp_path: Path) -> None:
    rank = "test $PMI_RANK = 3 || exec sleep 600"
    text = f"STEP sh -c '{rank}; exit 7'\necho code $?\n"
    trap = 'trap "exit 5" USR1; touch up.$PMI_RANK; while :; do sleep 0.01; done'
    text += f"STEP -n 3 sh -c '{trap}' & pid=$!\n"
    text += "until [ -e up.0 ] && [ -e up.2 ]; do sleep 0.01; done\n"
    text += "kill -USR1 $pid; wait $pid; echo code $?\n"
    world = script(tmp_path, text)
    world.start(server)
    lines = [line for line in finish(world, server) if line.startswith("code")]
    assert lines == ["code 7", "code 5"]


def test_much_output_arrives_in_order(server: FakeServer, tmp_path: Path) -> None:
    """Of a rank on the other node, more than is sent without acknowledgement."""
    hold = "STEP -n 2 sh -c 'touch held; until [ -e done ]; do sleep 0.01; done' &\n"
    hold += "until [ -e held ]; do sleep 0.01; done\n"
    numbers = "STEP -n 1 sh -c 'echo $PLIANT_NODE; seq 200000'; touch done; wait\n"
    world = script(tmp_path, hold + numbers)
    world.start(server)
    lines = finish(world, server)
    assert "n2" in lines
    assert [line for line in lines if line.isdigit()] == [str(n) for n in range(1, 200001)]


def test_messages_that_get_lost_are_sent_again(server: FakeServer, tmp_path: Path) -> None:
    server.dropped = 3
    world = script(tmp_path, "STEP printenv PLIANT_NODE\n")
    world.start(server)
    assert sorted(finish(world, server)) == ["n1", "n1", "n2", "n2"]


def test_a_step_survives_a_restart_of_a_controller(
    server: FakeServer, other_node: Node, tmp_path: Path
) -> None:
    text = "STEP sh -c 'touch up.$PMI_RANK; until [ -e go ]; do sleep 0.01; done; echo ok'\n"
    world = script(tmp_path, text)
    world.start(server)
    wait_until((tmp_path / "up.3").exists)
    other_node.kill()
    (tmp_path / "go").touch()
    other_node.start()
    assert finish(world, server) == ["ok"] * 4


def test_steps_on_other_nodes_end_with_the_script(server: FakeServer, tmp_path: Path) -> None:
    text = "STEP sh -c 'echo $$ > pid.$PMI_RANK; exec sleep 600' &\n"
    text += "until [ -s pid.0 ] && [ -s pid.3 ]; do sleep 0.01; done\n"
    world = script(tmp_path, text)
    world.start(server)
    finish(world, server)
    # A rank may have been ended after it opened its file and before it wrote to it.
    pids = [int(text) for path in tmp_path.glob("pid.*") if (text := path.read_text())]
    assert len(pids) >= 2
    assert not any(psutil.pid_exists(pid) for pid in pids)


# ------------------------------------------------------------------ commands of MPI launchers


def test_commands_run_on_the_host_that_they_name(server: FakeServer, tmp_path: Path) -> None:
    text = (
        f"{AGENT} -x n2 -l someone 'echo $PLIANT_NODE $PMI_RANK >&2; exit 3'\n"
        "echo code $?\n"
        f"echo input | {AGENT} someone@n1 cat\n"
        f"{AGENT} n2 '\"printenv\"' PLIANT_NODE\n"
    )
    world = script(tmp_path, text)
    world.start(server)
    assert finish(world, server) == ["n2", "code 3", "input", "n2"]


def test_commands_use_no_processor(server: FakeServer, tmp_path: Path) -> None:
    wait = "touch up; until [ -e done ]; do sleep 0.01; done"
    text = f"{AGENT} n2 '{wait}' & until [ -e up ]; do sleep 0.01; done\n"
    world = script(tmp_path, f"{text}STEP printenv PLIANT_NODE; touch done; wait\n")
    world.start(server)
    assert sorted(finish(world, server)) == ["n1", "n1", "n2", "n2"]


def test_daemons_of_commands_end_with_the_job(server: FakeServer, tmp_path: Path) -> None:
    daemon = 'setsid sh -c "echo \\$\\$ > pid; exec sleep 600" < /dev/null > out 2>&1 &'
    text = f"{AGENT} n2 '{daemon}'\nuntil [ -s pid ]; do sleep 0.01; done\n"
    world = script(tmp_path, f"{text}STEP true; ps -o stat= -p $(cat pid) | cut -c 1\n")
    world.start(server)
    assert finish(world, server) == ["S"]
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_commands_that_are_refused(server: FakeServer, tmp_path: Path) -> None:
    text = f"{AGENT} n7 true; echo code $?; {AGENT} -x n2; echo code $?\n"
    world = script(tmp_path, text)
    world.start(server)
    lines = finish(world, server)
    assert "no host n7; its hosts are n1, n2" in lines[0]
    assert [lines[1], lines[3]] == ["code 1", "code 2"]


def test_launchers_get_the_agent_unless_the_job_chooses(server: FakeServer, tmp_path: Path) -> None:
    text = 'basename "$HYDRA_LAUNCHER_EXEC"; basename "$PRTE_MCA_plm_ssh_agent"\n'
    text += 'echo "$OMPI_MCA_plm_rsh_agent" $OMPI_MCA_plm_rsh_no_tree_spawn end\n'
    world = script(tmp_path, text)
    world.environment = {"OMPI_MCA_plm_rsh_agent": "my-ssh"}
    world.start(server)
    assert finish(world, server) == ["pliant-launch-agent"] * 2 + ["my-ssh end"]
