"""`pliant up` and `down` on what somebody has removed, replaced, damaged or killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from clientkit.fake_cluster import cluster, running
from pliant.client.cluster import process_table, shutdown
from pliant.client.cluster.cluster_spec import ClusterSpec, save_spec
from pliant.client.cluster.local_cluster import LocalCluster
from pliant.client.cluster.up_down import down, up
from testkit import wait_until

Capture = pytest.CaptureFixture[str]


def test_a_daemon_that_was_replaced_is_found(state: Path) -> None:
    first = cluster(state)
    first.configure(ClusterSpec(1, 1))
    first.start_missing()
    save_spec(str(state), first.spec)
    dead = first.daemons[1]
    process_table.terminate([dead.running_pid()], 0.0)
    assert up(["--detach"]) == 0
    assert dead.running_pid() == running(state)["node-n1"] != 0
    assert down([]) == 0
    for daemon in first.daemons:
        if daemon.process is not None:
            daemon.process.wait()


@pytest.mark.parametrize("text", ["{bad", '{"nodes": "x"}', '{"slots": 0}', "[]"])
def test_a_shape_that_is_damaged(state: Path, capsys: Capture, text: str) -> None:
    assert up(["--nodes", "2", "--detach"]) == 0
    pids = running(state).values()
    (state / "cluster.json").write_text(text)
    capsys.readouterr()
    assert up(["--detach"]) == 1
    assert "cluster.json is damaged: remove it, and say" in capsys.readouterr().err
    # What runs is found without it.
    assert down([]) == 0
    assert capsys.readouterr().out == "down: all is gone\n"
    assert not any(map(process_table.alive, pids))
    (state / "cluster.json").unlink()


def test_one_run_directory_is_for_one_cluster(
    state: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert up(["--nodes", "1", "--detach"]) == 0
    other = state.parent / "other"
    other.mkdir()
    with monkeypatch.context() as patch:
        patch.setenv("PLIANT_STATE_DIR", str(other))
        assert up(["--nodes", "1", "--detach"]) == down([]) == 1
        assert capsys.readouterr().err.count(f"belong to the cluster in {state.resolve()}") == 2
    assert down([]) == 0


def test_down_finds_what_runs_without_its_run_directory(state: Path, capsys: Capture) -> None:
    assert up(["--nodes", "2", "--detach"]) == 0
    pids = running(state)
    shutil.rmtree(state.parent / "run")
    assert running(state) == pids
    capsys.readouterr()
    assert down(["--keep-jobs"]) == 0
    assert capsys.readouterr().out == "down: all is gone\n"
    assert not any(map(process_table.alive, pids.values()))


@pytest.mark.parametrize("words", [[], ["--keep-jobs"]])
def test_down_finds_what_runs_without_its_state_directory(
    state: Path, capsys: Capture, words: list[str]
) -> None:
    assert up(["--nodes", "1", "--detach"]) == 0
    pids = running(state).values()
    shutil.rmtree(state)
    shutil.rmtree(state.parent / "run")
    capsys.readouterr()
    assert down(words) == 0
    assert capsys.readouterr().out == "down: all is gone\n"
    assert not any(map(process_table.alive, pids))


@pytest.mark.parametrize("run", ["gone too", "there"])
def test_up_again_without_the_state_directory(state: Path, capsys: Capture, run: str) -> None:
    assert up(["--nodes", "1", "--detach"]) == 0
    pids = list(running(state).values())
    shutil.rmtree(state)
    if run == "gone too":
        shutil.rmtree(state.parent / "run")
    capsys.readouterr()
    assert up(["--detach"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"pliant up: state directory: {state}: what the cluster kept there was")
    assert said.count("\n") == 1
    assert all(map(process_table.alive, pids))
    assert down([]) == 0  # as it says
    assert not any(map(process_table.alive, pids))
    assert up(["--nodes", "1", "--detach"]) == down([]) == 0


def test_up_again_after_the_state_directory_was_moved(state: Path, capsys: Capture) -> None:
    assert up(["--nodes", "1", "--detach"]) == 0
    pids = list(running(state).values())
    state.rename(state.parent / "moved")
    capsys.readouterr()
    assert up(["--detach"]) == 1
    assert "was removed or moved while it ran; end it" in capsys.readouterr().err
    assert all(map(process_table.alive, pids))
    assert down([]) == 0  # as it says
    assert not any(map(process_table.alive, pids))


def test_up_again_without_the_run_directory(state: Path) -> None:
    assert up(["--nodes", "2", "--detach"]) == 0
    before = running(state)
    shutil.rmtree(state.parent / "run")
    assert up(["--detach"]) == 0
    after = running(state)
    # Nobody could find the server any more; the controllers go on.
    assert [name for name in after if after[name] != before[name]] == ["server"]
    assert not process_table.alive(before["server"])
    assert {path.stem for path in (state.parent / "run").glob("*.pid")} == set(after)
    assert down([]) == 0


def test_a_copy_with_its_run_directory_is_another_cluster(state: Path, tmp_path: Path) -> None:
    first, copy = tmp_path / "first", tmp_path / "copy"
    assert up(["--nodes", "1", "--detach", "--state-dir", str(first)]) == 0
    subprocess.run(["cp", "-a", str(first), str(copy)], check=True)
    assert LocalCluster(str(copy), str(copy / "run")).running() == []
    assert up(["--detach", "--state-dir", str(copy)]) == 0
    assert down(["--state-dir", str(copy)]) == 0
    left = LocalCluster(str(first), str(first / "run")).running()
    assert [daemon.name for daemon in left] == ["server", "node-n1"]
    assert down(["--state-dir", str(first)]) == 0
    assert running(state) == {}


def test_one_cluster_has_one_run_directory(
    state: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert up(["--nodes", "1", "--detach"]) == 0
    run, pids = state.parent / "run", running(state)
    with monkeypatch.context() as patch:
        patch.setenv("PLIANT_RUN_DIR", str(state.parent / "elsewhere"))
        assert up(["--detach"]) == down([]) == 1
        assert capsys.readouterr().err.count(f"name it with PLIANT_RUN_DIR={run}\n") == 2
    assert running(state) == pids
    assert down([]) == 0


def test_a_lock_that_names_somebody_else(state: Path) -> None:
    (state / "node-n1").mkdir(parents=True)
    for lock in ("server.lock", "node-n1/lock"):
        (state / lock).write_text(f"{os.getpid()} boot\n")
    assert running(state) == {}
    assert down([]) == 0


def test_a_pid_file_that_names_another_process(state: Path) -> None:
    run = state.parent / "run"
    (run / "server.pid").write_text(f"{os.getpid()}\n")
    (run / "node-n1.pid").write_text("nonsense")
    assert running(state) == {}
    assert down([]) == 0


def test_stale_files_that_name_one_who_only_mentions_daemons(state: Path) -> None:
    env = {**os.environ, "PLIANT_STATE_DIR": str(state)}
    (state / "node-n1").mkdir(parents=True)
    line = ["sh", "-c", "sleep 60; :", "pliant", "server", "nodectl", "--name", "n1"]
    with subprocess.Popen(line, env=env, start_new_session=True) as other:
        try:
            wait_until(lambda: process_table.command_line(other.pid)[:1] == ["sh"])
            for name in ("server.pid", "node-n1.pid"):
                (state.parent / "run" / name).write_text(f"{other.pid}\n")
            for lock in ("server.lock", "node-n1/lock"):
                (state / lock).write_text(f"{other.pid} boot\n")
            assert running(state) == {}
            assert down([]) == 0
            assert other.poll() is None
        finally:
            os.killpg(other.pid, signal.SIGKILL)


def test_the_controller_of_another_node_is_not_taken_for_it(state: Path) -> None:
    assert up(["--nodes", "2", "--detach"]) == 0
    pids = running(state)
    (state.parent / "run" / "node-n1.pid").write_text(f"{pids['node-n2']}\n")
    assert running(state) == pids, "found by its lock"
    assert down([]) == 0


def test_down_ends_the_processes_of_jobs_without_a_server(state: Path, capsys: Capture) -> None:
    mark = {"PLIANT_JOB": "1", "PLIANT_TOKEN_FILE": f"{state}/node-n1/spool/w/token"}
    job = subprocess.Popen(["sleep", "60"], env={**os.environ, **mark})
    other = subprocess.Popen(["sleep", "60"])
    try:  # a process that has just begun shows its environment a moment later
        wait_until(lambda: "PLIANT_JOB" in process_table.environment(job.pid))
        assert down(["--keep-jobs"]) == 0
        said = capsys.readouterr().out
        assert said == "down: 1 job goes on (1); the next `pliant up` has them\n"
        assert job.poll() is None
        assert down([]) == 0
        out, err = capsys.readouterr()
        assert out == "down: all is gone\n"
        assert err.startswith("pliant down: 1 job could not be cancelled (1): no server answered")
        assert job.wait(30) == -signal.SIGTERM
        assert other.poll() is None
    finally:
        for process in (job, other):
            process.kill()
            process.wait()


def test_down_says_what_outlived_that_the_server_had_cancelled_it(
    state: Path, capsys: Capture
) -> None:
    assert up(["--nodes", "1", "--detach"]) == 0
    (state / "running").touch()
    mark = {"PLIANT_JOB": "5", "PLIANT_TOKEN_FILE": f"{state}/node-n1/spool/w/token"}
    with subprocess.Popen(["sleep", "60"], env={**os.environ, **mark}) as job:
        wait_until(lambda: "PLIANT_JOB" in process_table.environment(job.pid))
        capsys.readouterr()
        assert down([]) == 0
        assert job.wait(30) == -signal.SIGTERM
    err = capsys.readouterr().err
    assert "the server cancelled what ran, but processes of 1 job did not go (5), so they" in err
    assert "no server answered" not in err


def test_down_says_that_the_disk_is_full(
    state: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert up(["--nodes", "1", "--detach"]) == 0
    mark = {"PLIANT_JOB": "5", "PLIANT_TOKEN_FILE": f"{state}/node-n1/spool/w/token"}
    monkeypatch.setattr(shutdown, "_is_full", lambda folder: folder == str(state))
    monkeypatch.setattr(shutdown, "_FULL_DISK_S", 0.1)
    monkeypatch.setattr(shutdown, "_active", lambda _: [5])  # the server can store no end
    with subprocess.Popen(["sleep", "60"], env={**os.environ, **mark}) as job:
        wait_until(lambda: "PLIANT_JOB" in process_table.environment(job.pid))
        capsys.readouterr()
        assert down([]) == 0
        assert job.wait(30) == -signal.SIGTERM
    said = capsys.readouterr().err
    assert f"could not be cancelled (5): the disk of {state} is full" in said
    assert "did not go" not in said


def test_down_leaves_processes_alone_that_only_name_a_daemon(state: Path) -> None:
    assert up(["--nodes", "1", "--detach"]) == 0
    env = {**os.environ, "PLIANT_STATE_DIR": str(state)}
    lines = (["sh", "-c", "sleep 60; : pliant.server"], ["tail", "-f", "pliant.nodectl.launcher"])
    (state.parent / "pliant.nodectl.launcher").touch()
    others = [subprocess.Popen(line, env=env, cwd=state.parent) for line in lines]
    try:
        wait_until(
            lambda: all("PLIANT_STATE_DIR" in process_table.environment(p.pid) for p in others)
        )
        assert down([]) == 0
        assert [other.poll() for other in others] == [None, None]
    finally:
        for other in others:
            process_table.terminate([*_children(other.pid), other.pid], 0.0)
            other.wait()


def _children(pid: int) -> list[int]:
    return process_table.find(lambda each: process_table.parent(each) == pid)


def test_down_through_a_link_without_the_run_directory(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert up(["--nodes", "1", "--detach"]) == 0
    pids = running(state).values()
    shutil.rmtree(state.parent / "run")
    link = state.parent / "link"
    link.symlink_to(state)
    with monkeypatch.context() as patch:
        patch.setenv("PLIANT_STATE_DIR", str(link))
        assert down([]) == 0
    assert not any(map(process_table.alive, pids))


def test_down_has_nodes_end_worlds_without_a_shim(
    state: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = [state / f"node-{name}" / "spool" / "w" for name in ("n1", "n2")]
    for world in worlds:
        world.mkdir(parents=True)
        (world / "token").touch()
    with monkeypatch.context() as patch:
        patch.setenv("PRETEND", "stuck")
        assert down([]) == 1
    said = capsys.readouterr()
    assert said.out == "down: not all is gone\n"
    for name in ("n1", "n2"):
        log = state / f"node-{name}" / "nodectl.log"
        assert f"jobs of node {name} could not all be ended: see {log}" in said.err
    assert down(["--keep-jobs"]) == 0
    assert all((world / "token").exists() for world in worlds)
    assert down([]) == 0
    said = capsys.readouterr()
    assert "ending what is left of jobs on 2 nodes" in said.err
    assert not any((world / "token").exists() for world in worlds)
    assert down([]) == 0
    assert capsys.readouterr() == ("down: nothing was up\n", "")
