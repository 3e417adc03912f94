"""A backup of a running server, and a server that is restored from it."""

from __future__ import annotations

import io
import json
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pliant.server.backup.backup_commands import backup, restore
from pliant.server.backup.restore import read_backup, restore_backup
from serverkit import Server

pytestmark = pytest.mark.cluster


@pytest.fixture
def saved(server: Server, tmp_path: Path) -> Iterator[Path]:
    """Return the backup of a running server that has a job."""
    node = server.controller().welcome()
    with server.user() as user:
        assert user.submit(hold=True) == 1
    file = tmp_path / "backup.tar"
    assert backup([str(file), "--state-dir", str(server.state)]) == 0
    yield file
    node.close()


def test_it_is_private_and_names_what_it_holds(saved: Path) -> None:
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    manifest, contents = read_backup(saved)
    assert set(contents) == {"state/pliant.db", "state/node.secret", "state/server.generation"}
    assert manifest["generation"] == 1


def test_a_restored_server_has_the_jobs_and_uses_no_number_twice(
    saved: Path, server: Server, make_server: Callable[..., Server]
) -> None:
    with server.user() as user:
        assert user.submit(hold=True) == 2  # after the backup: it is lost
    other = make_server()
    assert restore([str(saved), "--state-dir", str(other.state)]) == 0
    other.start()
    with other.user() as user, server.user() as original:
        assert user.job(1)["state"] == "HELD"
        assert user.submit(hold=True) > 2
        user.do("cancel", ids=[1])
        assert original.job(1)["state"] == "HELD"


def test_the_generation_is_above_that_of_the_original(saved: Path, tmp_path: Path) -> None:
    made = read_backup(saved)[0]["made"]
    for number, days in enumerate((0, 1, 365)):
        state = tmp_path / f"state-{number}"
        restore_backup(saved, state, clock=lambda days=days: made + days * 86400)  # type: ignore[misc]
        generation = int((state / "server.generation").read_text())
        assert 1000 < generation < 100_000


def test_a_running_server_is_not_overwritten(saved: Path, server: Server) -> None:
    before = (server.state / "server.generation").read_text()
    assert restore([str(saved), "--state-dir", str(server.state), "--replace"]) == 1
    assert (server.state / "server.generation").read_text() == before


def test_a_state_is_replaced_only_if_asked_for(saved: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    words = [str(saved), "--state-dir", str(state)]
    assert restore(words) == 0
    (state / "node-n1").mkdir()
    assert restore(words) == 1
    assert restore([*words, "--replace"]) == 0
    (kept,) = state.glob("before-restore-*")
    assert {path.name for path in kept.iterdir()} == {"pliant.db", "server.generation"}
    assert (state / "node-n1").is_dir()


def test_the_configuration_is_saved(server: Server, tmp_path: Path) -> None:
    config, file = tmp_path / "server.yaml", tmp_path / "backup.tar"
    config.write_text("strategy: fcfs\n")
    words = [str(file), "--state-dir", str(server.state), "--config", str(config)]
    assert backup(words) == 0
    state, folder = tmp_path / "state", tmp_path / "etc"
    words = [str(file), "--state-dir", str(state), "--configuration-to", str(folder)]
    assert restore(words) == 0
    assert (folder / "server.yaml").read_text() == "strategy: fcfs\n"


def rewrite(file: Path, change: Callable[[dict[str, bytes]], object]) -> None:
    """Change the members of a backup."""
    with tarfile.open(file) as archive:
        members = {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]
    change(members)
    with tarfile.open(file, "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def raise_format(members: dict[str, bytes]) -> None:
    manifest = json.loads(members["manifest.json"])
    members["manifest.json"] = json.dumps({**manifest, "format": 99}).encode()


@pytest.mark.parametrize(
    "change",
    [
        lambda members: members.update({"state/pliant.db": b"x"}),
        lambda members: members.pop("state/pliant.db"),
        lambda members: members.pop("manifest.json"),
        lambda members: members.update({"manifest.json": b"[1]"}),
        lambda members: members.update({"state/../../x": b"x"}),
        raise_format,
    ],
)
def test_a_damaged_or_newer_backup_changes_nothing(
    saved: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], object]
) -> None:
    rewrite(saved, change)
    assert restore([str(saved), "--state-dir", str(tmp_path / "state")]) == 1
    assert not (tmp_path / "state").exists()


def test_what_is_no_backup_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    for name in ("file", "missing"):
        assert restore([str(tmp_path / name), "--state-dir", str(tmp_path / "state")]) == 1


def test_without_a_database_there_is_no_backup(tmp_path: Path) -> None:
    assert backup([str(tmp_path / "b.tar"), "--state-dir", str(tmp_path)]) == 1
    assert backup([str(tmp_path / "b.tar"), "--config", str(tmp_path / "missing")]) == 2
    assert not (tmp_path / "b.tar").exists()
    shutil.rmtree(tmp_path)
