"""The agent: errors become answers, and the record of the host survives failures."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pliant.deploy.on_host import MODULES, manifest, removal
from pliant.deploy.on_host.agent import OPERATIONS, answer
from pliant.deploy.on_host.host_error import HostError
from pliant.deploy.on_host.manifest import changed_manifest, locked, read_manifest
from pliant.deploy.on_host.processes import find_daemons, find_processes
from pliant.deploy.rollout.agent_session import BOOTSTRAP, agent_sources
from testkit import ROOT, wait_until


def ask(operation: str, **arguments: Any) -> dict[str, Any]:
    return answer({"operation": operation, "arguments": arguments}, io.BytesIO())


def test_all_modules_are_sent_in_the_order_of_their_imports() -> None:
    there = {path.stem for path in (ROOT / "deploy/on_host").glob("*.py")}
    assert set(MODULES) == there - {"__init__"}
    request = {"operation": "find-marker", "arguments": {"shared": [], "marker": "x"}}
    # Isolated and without site packages, as on a host that has nothing but Python.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", BOOTSTRAP],
        input=f"{json.dumps(agent_sources())}\n{json.dumps(request)}\n",
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    assert json.loads(done.stdout) == {"result": {"missing": {}}}


def test_an_error_of_the_system_names_the_file_and_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = ask("write-file", prefix=str(tmp_path / "file"), path="/x", text="", daemons=[])
    assert str(tmp_path / "file") in found["error"]
    assert ask("make-marker", shared=["/nowhere"], marker="m")["remedy"]


def test_a_command_that_fails_is_an_error_with_its_message(tmp_path: Path) -> None:
    user = os.environ.get("USER") or "root"
    folders = {"account": user, "state": str(tmp_path), "run": str(tmp_path)}
    argv = ["/bin/sh", "-c", "echo wrong >&2; exit 4"]
    found = ask("run-command", argv=argv, as_root=True, **folders)
    assert "wrong" in found["error"]
    assert ask("run-command", argv=argv, as_root=True, may_fail=True, **folders) == (
        {"result": {"code": 4, "stdout": ""}}
    )


def test_an_account_that_does_not_exist_is_named(tmp_path: Path) -> None:
    folders = {"state": str(tmp_path), "run": str(tmp_path)}
    found = ask(
        "start-daemon",
        prefix="/x",
        daemon="node",
        argv=["/x"],
        log="/x",
        account="nobody-of-this-name",
        **folders,
    )
    assert "error" in found


def test_the_record_is_saved_although_the_change_failed(tmp_path: Path) -> None:
    prefix = str(tmp_path / "prefix")
    assert read_manifest(prefix) is None
    with pytest.raises(OSError), changed_manifest(prefix) as record:  # noqa: PT011, PT012
        record["folders"].append("/made")
        raise OSError
    found = read_manifest(prefix)
    assert found is not None
    assert found["folders"] == ["/made"]


@pytest.mark.parametrize("text", ["[]", "{", '{"version": 99}'])
def test_a_record_that_is_not_understood_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "deployment.json").write_text(text)
    with pytest.raises(HostError):
        read_manifest(str(tmp_path))


def test_daemons_are_found_by_their_environment(tmp_path: Path) -> None:
    programs = tmp_path / "env-1.0-aaaaaaaa" / "bin"
    programs.mkdir(parents=True)
    python = programs / "python"
    python.symlink_to(sys.executable)
    script = programs / "pliant"
    script.write_text("import time; time.sleep(600)")
    commands = [[str(python), str(script), word] for word in ("nodectl", "other")]
    processes = [subprocess.Popen(command) for command in commands]
    try:
        wait_until(lambda: len(find_processes(str(tmp_path))) == 2, what="both processes")
        found = find_daemons(str(tmp_path))
        assert {name: each.pid for name, each in found.items()} == {"node": processes[0].pid}
        assert found["node"].environment == str(tmp_path / "env-1.0-aaaaaaaa")
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_folders_and_files_are_removed_again(tmp_path: Path) -> None:
    import getpass

    own = tmp_path / "kept"
    own.mkdir()
    prefix, state = own / "a/prefix", own / "b/state"
    base = {"prefix": str(prefix), "account": getpass.getuser(), "cluster": "blue"}
    wanted = [
        {"path": str(path), "mode": 0o700, "owner": getpass.getuser()} for path in (prefix, state)
    ]
    assert ask("make-folders", folders=wanted, **base) == {"result": {}}
    assert ask("write-file", path=str(own / "c/file"), text="x", daemons=[], **base) == {
        "result": {}
    }
    (state / "database").write_text("x")
    found = ask("remove-all", own=[str(state)], helper_files=[], **base)
    assert found == {"result": {"kept": []}}
    assert list(own.iterdir()) == []


def test_folders_of_others_next_to_environments_are_kept(tmp_path: Path) -> None:
    for name in ("env-py311", "env-1.0-aaaaaaaa"):
        (tmp_path / name / "bin").mkdir(parents=True)
    (tmp_path / "current").mkdir()
    base = {"prefix": str(tmp_path), "cluster": "blue"}
    ask("make-folders", folders=[], **base)
    script = tmp_path / "env-py311/bin/python"
    script.symlink_to(sys.executable)
    with subprocess.Popen([script, "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            assert find_processes(str(tmp_path)) == []
            found = ask("remove-all", own=[], helper_files=[], **base)
            assert process.poll() is None
        finally:
            process.kill()
    assert found == {"result": {"kept": [str(tmp_path)]}}
    assert {each.name for each in tmp_path.iterdir()} == {"env-py311", "current"}


def test_a_removal_that_failed_half_way_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix, commands = tmp_path / "prefix", list[list[str]]()
    (prefix / "env-1.0-aaaaaaaa").mkdir(parents=True)
    with changed_manifest(str(prefix)) as record:
        record["units"] = ["pliant-server"]

    def fail(path: str, **_more: Any) -> None:
        raise OSError(f"{path} is busy")

    arguments: dict[str, Any] = {"prefix": str(prefix), "own": [], "helper_files": []}
    # The units are not there any more, so systemctl would refuse to disable them.
    monkeypatch.setattr(removal, "_TARGET", str(tmp_path / "pliant.target"))
    monkeypatch.setattr(removal, "check", commands.append)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", fail)
        assert "error" in ask("remove-all", **arguments)
    assert read_manifest(str(prefix)) is not None
    assert "result" in ask("remove-all", **arguments)
    assert read_manifest(str(prefix)) is None
    assert not [words for words in commands if "disable" in words]


def test_errors_show_the_end_of_a_large_log_only(tmp_path: Path) -> None:
    user = os.environ.get("USER") or "root"
    log = tmp_path / "node.log"
    log.write_text("x" * 100_000 + "\n")
    found = ask(
        "start-daemon",
        prefix=str(tmp_path),
        daemon="node",
        argv=["/bin/sh", "-c", "echo the reason; exit 3"],
        log=str(log),
        account=user,
        state=str(tmp_path),
        run=str(tmp_path),
    )
    assert "the reason" in found["error"]
    assert len(found["error"]) < 10_000


def test_only_environments_of_releases_are_removed_by_a_switch(tmp_path: Path) -> None:
    for name in ("env-py311", "env-1.0-aaaaaaaa", "env-2.0-bbbbbbbb"):
        (tmp_path / name).mkdir()
    ask("switch-environment", prefix=str(tmp_path), environment="env-2.0-bbbbbbbb")
    left = {each.name for each in tmp_path.glob("env-*")}
    assert left == {"env-py311", "env-2.0-bbbbbbbb"}


def test_folders_can_be_entered_although_the_host_has_a_strict_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        path = str(tmp_path / "etc/node.yaml")
        ask("write-file", prefix=str(tmp_path / "prefix"), path=path, text="", daemons=["node"])
    finally:
        os.umask(before)
    for folder in ("etc", "prefix"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o755


def test_a_folder_without_its_owner_is_made_again(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"prefix": str(tmp_path / "prefix"), "cluster": "blue"}
    state = {"path": str(tmp_path / "state"), "mode": 0o700, "owner": "nobody-of-this-name"}
    assert "error" in ask("make-folders", folders=[state], **arguments)
    assert not (tmp_path / "state").exists()


def test_two_administrators_do_not_change_a_host_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = str(tmp_path)
    monkeypatch.setattr(manifest, "LOCK_TIMEOUT_S", 0.0)
    with locked(prefix):
        found = ask("install-environment", prefix=prefix, environment="env-1.0-aaaaaaaa", wheels={})
        assert found["remedy"]
        assert "error" in ask("make-folders", prefix=prefix, cluster="blue", folders=[])
    assert ask("make-folders", prefix=prefix, cluster="blue", folders=[]) == {"result": {}}


def test_daemons_whose_files_changed_are_recorded(tmp_path: Path) -> None:
    path = str(tmp_path / "node.yaml")
    for _ in range(2):
        ask("write-file", prefix=str(tmp_path), path=path, text="", daemons=["node"])
    record = read_manifest(str(tmp_path))
    assert record is not None
    assert record["to_restart"] == ["node"]


def test_a_shared_folder_is_recognised_by_its_marker(tmp_path: Path) -> None:
    shared, other = tmp_path / "shared", tmp_path / "other"
    for folder in (shared, other):
        folder.mkdir()
    assert ask("make-marker", shared=[str(shared)], marker="m") == {"result": {}}
    missing = ask("find-marker", shared=[str(shared), str(other), "/nowhere"], marker="m")
    assert set(missing["result"]["missing"]) == {str(other), "/nowhere"}
    ask("remove-marker", shared=[str(shared)], marker="m")
    assert list(shared.iterdir()) == []


def test_every_operation_of_a_plan_is_known() -> None:
    text = "".join(
        path.read_text() for path in (ROOT / "deploy").rglob("*.py") if "on_host" not in path.parts
    )
    assert all(f'"{name}"' in text for name in OPERATIONS)
