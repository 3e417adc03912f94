from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from clientkit.fake_cluster import cluster, running
from pliant.client.cluster import local_cluster, process_table, up_down
from pliant.client.cluster.cluster_spec import ClusterSpec, load_spec, save_spec
from pliant.client.cluster.local_cluster import LocalCluster
from pliant.client.cluster.up_down import down, up
from pliant.client.terminal.interrupts import Interrupted
from pliant.client.terminal.output import BROKEN_PIPE
from testkit import wait_until

Capture = pytest.CaptureFixture[str]


def requests(state: Path) -> list[str]:
    return [json.loads(line)["op"] for line in (state / "requests").read_text().splitlines()]


def test_up_and_down_twice(state: Path, capsys: Capture) -> None:
    assert up(["--nodes", "2", "--slots", "3", "--detach"]) == 0
    first = running(state)
    assert list(first) == ["server", "node-n1", "node-n2"]
    assert capsys.readouterr().out.startswith("up: 2 nodes with 3 processors each; ")
    words = process_table.command_line(first["node-n1"])
    address = str(state.parent / "run" / "server.address")
    start = words.index("--name")
    expected = ["--name", "n1", "--slots", "3", "--address-file", address]
    assert words[start : start + 6] == expected
    assert up(["--detach"]) == 0
    assert running(state) == first
    assert down([]) == 0
    assert running(state) == {}
    assert [pid for pid in first.values() if process_table.alive(pid)] == []
    assert sorted(path.name for path in (state.parent / "run").iterdir()) == []
    capsys.readouterr()
    assert down([]) == 0
    assert capsys.readouterr().out == "down: nothing was up\n"


def test_up_starts_what_is_missing(state: Path, capsys: Capture) -> None:
    assert up(["--nodes", "3", "--slots", "2", "--detach"]) == 0
    before = running(state)
    os.kill(before["node-n2"], signal.SIGKILL)
    process_table.wait_gone([before["node-n2"]], 5)
    capsys.readouterr()
    assert up(["--detach"]) == 0
    # The server has not missed it yet and says UP: the new one must have come.
    told = capsys.readouterr().err.splitlines()
    assert told == ["server up, 2 of 3 nodes up", "server up, 3 of 3 nodes up"]
    after = running(state)
    assert after.keys() == before.keys()
    assert [name for name in after if after[name] != before[name]] == ["node-n2"]
    assert down([]) == 0


def test_it_is_the_same_cluster_the_next_time(state: Path, capsys: Capture) -> None:
    words = ["--nodes", "1", "--slots", "2", "--strategy", "egs+pra", "--transport", "ucx"]
    assert up([*words, "--detach"]) == 0
    assert up(["--nodes", "2", "--detach"]) == 1
    assert "take it down first" in capsys.readouterr().err
    assert up(["--slots", "3", "--detach"]) == 1
    assert down([]) == 0
    assert up(["--detach"]) == 0
    server, node = running(state).values()
    assert process_table.command_line(server)[-2:] == ["--strategy", "egs+pra"]
    assert process_table.command_line(node)[-2:] == ["--transport", "ucx"]
    assert down([]) == 0


@pytest.mark.parametrize(
    ("cpus", "options"),
    [
        (6, [["--cpus", "0,1,2"], ["--cpus", "3,4,5"]]),
        (5, [["--cpus", "0,1"], ["--cpus", "2,3"]]),
        (3, [["--no-bind"], ["--no-bind"]]),
    ],
)
def test_the_nodes_of_a_machine_do_not_bind_jobs_to_the_same_cpus(
    state: Path, monkeypatch: pytest.MonkeyPatch, cpus: int, options: list[list[str]]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)))
    cluster = LocalCluster(str(state), str(state / "run"), ClusterSpec(nodes=2, slots=2))
    commands = [daemon.command for daemon in cluster.daemons[1:]]
    assert [list(words[words.index("--address-file") + 2 :]) for words in commands] == options


def test_spare_nodes_and_a_limit_of_processes(state: Path, capsys: Capture) -> None:
    words = ["--nodes", "1", "--slots", "2", "--spares", "1", "--most-processes", "70"]
    assert up([*words, "--detach"]) == 0
    assert capsys.readouterr().out.startswith(
        "up: 1 node with 2 processors in all and 1 spare node"
    )
    assert down([]) == 0
    assert up(["--detach"]) == 0
    _, usual, spare = (process_table.command_line(pid) for pid in running(state).values())
    assert usual[-2:] == ["--most-processes", "70"]
    assert spare[-3:] == ["--spare", "--most-processes", "70"]
    assert spare[spare.index("--name") + 1] == "s1"
    assert down([]) == 0
    assert up(["--spares", "0", "--most-processes", "0", "--detach"]) == 0
    assert list(running(state)) == ["server", "node-n1"]
    assert "--most-processes" not in process_table.command_line(running(state)["node-n1"])
    assert down([]) == 0


def test_options_stay_with_their_strategy(state: Path) -> None:
    words = ["--strategy", "egs+pra", "--strategy-option", "threshold=1"]

    def told(*more: str) -> list[str]:
        assert up(["--nodes", "1", *more, "--detach"]) == 0
        line = process_table.command_line(running(state)["server"])
        assert down([]) == 0
        return line[line.index("--strategy") :]

    assert told(*words, "--strategy-option", "initial=max") == [
        *words,
        "--strategy-option",
        "initial=max",
    ]
    assert told()[-1] == "initial=max"
    assert told("--strategy", "egs+pra")[-1] == "initial=max"
    assert told("--strategy-option", "threshold=2")[2:] == ["--strategy-option", "threshold=2"]
    assert told("--strategy", "egs+pwa") == ["--strategy", "egs+pwa"]


def test_the_shape_changes_when_nothing_runs(state: Path, capsys: Capture) -> None:
    assert up(["--nodes", "3", "--slots", "2", "--detach"]) == 0
    assert down([]) == 0
    for mark in state.glob("up-*"):
        mark.unlink()
    (state / "ghosts").write_text("n2 n3 other")
    capsys.readouterr()
    assert up(["--nodes", "1", "--slots", "1", "--detach"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("up: 1 node with 1 processor in all; ")
    assert "warning: node n3 cannot be removed" in err
    removed = [line for line in (state / "requests").read_text().splitlines() if "remove" in line]
    assert [json.loads(line)["node"] for line in removed] == ["n2", "n3"]
    assert cluster(state).spec == ClusterSpec(1, 1)
    assert down([]) == 0


def test_a_shape_that_did_not_come_up_is_not_kept(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert up(["--nodes", "1", "--slots", "2", "--detach"]) == 0
    assert down([]) == 0
    monkeypatch.setenv("PRETEND", "dies")
    assert up(["--nodes", "2", "--slots", "4", "--detach"]) == 1
    assert cluster(state).spec == ClusterSpec(1, 2)


def test_a_state_directory_that_is_a_file(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "file"
    file.touch()
    assert up(["--state-dir", str(file), "--detach"]) == 1
    err = capsys.readouterr().err
    assert f"state directory: {file}: it is a file, not a directory; name another" in err
    assert err.count("\n") == 1
    assert up(["--state-dir", str(file / "below"), "--detach"]) == 1
    assert "not a directory; name another directory with --state-dir" in capsys.readouterr().err


def test_a_run_directory_that_is_a_file(state: Path, capsys: Capture) -> None:
    run = state.parent / "run"
    run.rmdir()
    run.touch()
    assert up(["--detach"]) == 1
    assert capsys.readouterr().err == (
        f"pliant up: run directory: {run}: it is a file, not a directory; remove it, or name "
        "another directory with $PLIANT_RUN_DIR\n"
    )
    assert down([]) == 0
    run.unlink()
    run.mkdir()


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
@pytest.mark.parametrize("what", ["makedirs", "replace"])
def test_a_disk_that_takes_nothing(
    state: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, number: int, what: str
) -> None:
    def fail(path: str, *_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), path)

    with monkeypatch.context() as full:
        full.setattr(local_cluster.os, what, fail)  # type: ignore[attr-defined]
        assert up(["--nodes", "1", "--slots", "1", "--detach"]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "pliant up: " in line]
    assert line.startswith(f"pliant up: state directory: {state.parent}/")
    assert ("make room" in line) == (number == errno.ENOSPC)
    assert "$PLIANT_STATE_DIR" in line
    assert running(state) == {}


def test_a_configuration_is_handed_to_the_server(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.touch()
    assert up(["--nodes", "1", "--config", str(file), "--detach"]) == 0
    words = process_table.command_line(running(state)["server"])
    assert words[words.index("--config") + 1] == str(file)
    assert words[-4:] == ["--state-dir", str(state), "--run-dir", str(state.parent / "run")]
    assert down([]) == 0


def test_what_the_server_would_refuse_is_not_remembered(
    state: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRETEND", "refuses")
    assert up(["--nodes", "1", "--strategy", "tarot", "--detach"]) == 2
    assert capsys.readouterr().err == "pliant up: no such thing\n"
    assert load_spec(str(state)) is None
    assert running(state) == {}


def test_a_daemon_that_dies_at_its_start(
    state: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRETEND", "dies")
    (state / "node-n2").mkdir(parents=True)
    (state / "node-n2" / "nodectl.log").write_text("an earlier life\n")
    assert up(["--nodes", "2", "--slots", "2", "--detach"]) == 1
    err = capsys.readouterr().err
    assert "node-n2 ended with exit code 1" in err
    assert "an earlier life" not in err
    assert "nothing works today" in err
    assert running(state) == {}


@pytest.mark.parametrize("names", [["server"], ["node-n2"], ["node-n1", "node-n2"]])
def test_up_names_daemons_that_are_stopped_and_what_helps(
    state: Path, capsys: Capture, names: list[str]
) -> None:
    assert up(["--nodes", "2", "--slots", "2", "--detach"]) == 0
    before = running(state)
    pids = [before[name] for name in names]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(process_table.state(pid) == "T" for pid in pids))
    capsys.readouterr()
    assert up(["--detach"]) == 1
    who = ", ".join(f"{name} (process {before[name]})" for name in names)
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"pliant up: {who} ")
    assert f" stopped; `kill -CONT {' '.join(map(str, pids))}` lets " in line
    assert running(state) == before
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    assert up(["--detach"]) == 0
    assert running(state) == before
    assert down([]) == 0


def test_up_waits_a_moment_for_a_daemon_that_is_stopped(state: Path) -> None:
    assert up(["--nodes", "1", "--detach"]) == 0
    pid = running(state)["node-n1"]
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: process_table.state(pid) == "T")
    goes_on = threading.Timer(0.2, os.kill, [pid, signal.SIGCONT])
    goes_on.start()
    assert up(["--detach"]) == 0
    goes_on.join()
    assert down([]) == 0


def test_down_cancels_what_runs(state: Path) -> None:
    assert up(["--nodes", "1", "--slots", "2", "--detach"]) == 0
    (state / "running").touch()
    (state / "requests").unlink()
    assert down([]) == 0
    told = requests(state)
    assert told[:4] == ["jobs", "nodes", "drain", "jobs"]
    assert (told.count("cancel"), told[-1]) == (1, "stop")


def test_down_can_leave_jobs_alone(state: Path, capsys: Capture) -> None:
    assert up(["--nodes", "1", "--slots", "2", "--detach"]) == 0
    (state / "running").touch()
    (state / "requests").unlink()
    assert down(["--keep-jobs"]) == 0
    assert requests(state) == ["stop"]
    assert capsys.readouterr().out.endswith("down: all is gone\n")


def test_a_state_directory_of_its_own(state: Path, tmp_path: Path, capsys: Capture) -> None:
    chosen = tmp_path / "deep" / "state"
    assert up(["--nodes", "1", "--slots", "1", "--detach", "--state-dir", str(chosen)]) == 0
    assert f"export PLIANT_STATE_DIR={chosen}" in capsys.readouterr().out
    assert running(state) == {}
    assert (chosen / "run" / "server.pid").exists()
    assert down(["--state-dir", str(chosen)]) == 0


def test_sites_and_nodes_must_not_contradict_each_other(state: Path, capsys: Capture) -> None:
    assert up(["--nodes", "4", "--sites", "delft:2,leiden:1", "--detach"]) == 2
    assert "3 nodes" in capsys.readouterr().err
    assert up(["--sites", "delft", "--detach"]) == 2
    assert not state.exists() or not list(running(state))


@pytest.mark.parametrize(
    "words",
    [
        ["--nodes", "0"],
        ["--nodes", "1_0"],
        ["--slots", "x"],
        ["--slots", " 3"],
        ["--spares", "-1"],
        ["--most-processes", "many"],
        ["--transport", "tcp"],
    ],
)
def test_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        up(words)


FOREGROUND = """
import os, sys
from pliant.client.cluster import local_cluster
pliant = os.path.join(os.path.dirname(os.environ["PLIANT_RUN_DIR"]), "pliant")
local_cluster.SERVER = (sys.executable, pliant, "server")
local_cluster.CONTROLLER = (sys.executable, pliant, "nodectl")
from pliant.client.cluster.up_down import up
sys.exit(up(sys.argv[1:]))
"""


def start_up(
    *words: str, trouble: str = "", stdout: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Start `pliant up` as another process does."""
    return subprocess.Popen(
        [sys.executable, "-c", FOREGROUND, *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PRETEND": trouble},
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["when it is up", "at once"])
def test_in_the_foreground_until_a_signal(state: Path, number: signal.Signals, moment: str) -> None:
    process = start_up("--nodes", "2", trouble="deaf" if moment == "at once" else "")
    assert process.stdout is not None
    if moment == "when it is up":
        assert process.stdout.readline().startswith("up: ")
    else:
        wait_until((state.parent / "run" / "server.pid").exists)
    process.send_signal(number)
    _, err = process.communicate(timeout=40)
    assert process.returncode == (0 if moment == "when it is up" else 130), err
    assert process_table.find(cluster(state).owns) == []


def test_up_in_the_foreground_does_not_take_over_a_cluster_that_runs(
    state: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The process that runs the tests reaps nothing: orphans of later tests would stay as zombies.
    monkeypatch.setattr(process_table, "adopt_orphans", lambda: None)
    assert up(["--nodes", "1", "--detach"]) == 0
    capsys.readouterr()
    for words in ([], ["--nodes", "2"]):
        assert up(words) == 1
        err = capsys.readouterr().err
        assert f"already runs in {state}" in err
        assert "pliant down" in err
    assert sorted(running(state)) == ["node-n1", "server"]
    assert down([]) == 0


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """Return the end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def test_a_closed_stdout_does_not_end_a_detached_cluster(state: Path, closed_pipe: int) -> None:
    process = start_up("--nodes", "1", "--detach", stdout=closed_pipe)
    _, err = process.communicate(timeout=60)
    assert process.returncode == BROKEN_PIPE, err
    assert "pliant up: " not in err
    assert sorted(running(state)) == ["node-n1", "server"]
    assert down([]) == 0


def test_a_closed_stdout_does_not_end_a_cluster_in_the_foreground(
    state: Path, closed_pipe: int
) -> None:
    process = start_up("--nodes", "1", stdout=closed_pipe)
    wait_until(lambda: load_spec(str(state)) is not None or process.poll() is not None)
    with pytest.raises(subprocess.TimeoutExpired):  # it has printed by then
        process.wait(timeout=3)
    assert sorted(running(state)) == ["node-n1", "server"]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=40)
    assert process.returncode == 0, err
    assert process_table.find(cluster(state).owns) == []


def test_an_unusable_directory_after_ctrl_c_is_explained(
    state: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise Interrupted

    def fail(own: LocalCluster, *_: object, **__: object) -> None:
        own.undo_start()
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(state))

    monkeypatch.setattr(process_table, "adopt_orphans", lambda: None)
    monkeypatch.setattr(up_down, "_wait_for_end", interrupt)
    monkeypatch.setattr(up_down, "stop", fail)
    assert up(["--nodes", "1"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"pliant up: state directory: {state}: read-only file system; name")


def test_one_that_waited_for_another_takes_the_cluster_that_it_finds(state: Path) -> None:
    with cluster(state).locked():
        process = start_up("--detach")
        lock, other = str(state / "cluster.lock"), psutil.Process(process.pid)
        wait_until(
            lambda: lock in {file.path for file in other.open_files()}, what="it to want the lock"
        )
        save_spec(str(state), ClusterSpec(nodes=2, slots=3))
    out, err = process.communicate(timeout=60)
    assert out.startswith("up: 2 nodes with 3 processors each"), err
    assert sorted(running(state)) == ["node-n1", "node-n2", "server"]
    assert down([]) == 0
