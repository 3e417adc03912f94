from __future__ import annotations

import os
from pathlib import Path

import pytest

from pliant.client import paths, site_settings
from pliant.client.client_errors import UsageError
from pliant.client.site_settings import trusted_accounts, users_dir

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="the file must belong to root")


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PLIANT_SERVER_USER", raising=False)
    path = tmp_path / "client.yaml"
    monkeypatch.setattr(site_settings, "SITE_FILE", str(path))
    return path


def test_without_a_file_root_and_the_user_are_trusted() -> None:
    assert trusted_accounts() == {0, os.geteuid()}
    assert users_dir() == "/run/pliant/users"


@as_root
def test_the_file_names_the_account_and_the_folder(file: Path) -> None:
    file.write_text("server_user: 5001\nusers_dir: /srv/pliant\n")
    assert trusted_accounts() == {0, os.geteuid(), 5001}
    assert users_dir() == "/srv/pliant"


@pytest.mark.parametrize(("account", "uid"), [("nobody", 65534), ("5009", 5009)])
def test_the_environment_names_the_account(
    monkeypatch: pytest.MonkeyPatch, account: str, uid: int
) -> None:
    monkeypatch.setenv("PLIANT_SERVER_USER", account)
    assert uid in trusted_accounts()


def test_an_account_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIANT_SERVER_USER", "nobody-here")
    with pytest.raises(UsageError, match=r"PLIANT_SERVER_USER: .*'nobody-here'"):
        trusted_accounts()


@as_root
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("server_usr: pliant\n", "server_usr: unknown key"),
        ("users_dir: run\n", "users_dir: expected an absolute path"),
        ("[1]\n", "expected keys and values"),
        ("server_user: nobody-here\n", "server_user: there is no account"),
    ],
)
def test_mistakes_in_the_file_are_named(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        trusted_accounts()


@as_root
@pytest.mark.parametrize("how", ["owner", "mode", "link"])
def test_a_file_that_others_could_write_is_refused(file: Path, how: str) -> None:
    file.write_text("server_user: 5002\n")
    if how == "owner":
        os.chown(file, 5002, 5002)
    elif how == "mode":
        file.chmod(0o664)
    else:
        other = file.with_name("other.yaml")
        file.rename(other)
        file.symlink_to(other)
    with pytest.raises(UsageError, match="only root may write"):
        trusted_accounts()


def test_commands_find_the_own_cluster_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PLIANT_RUN_DIR", raising=False)
    monkeypatch.delenv("PLIANT_STATE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    shared = tmp_path / "users"
    monkeypatch.setattr(paths, "users_dir", lambda: str(shared))
    own = tmp_path / ".local/state/pliant/run"
    assert paths.server_dir() == str(own)  # so that the message names the usual place
    shared.mkdir()
    assert paths.server_dir() == str(shared)
    own.mkdir(parents=True)
    (own / "server.sock").touch()
    assert paths.server_dir() == str(own)
    monkeypatch.setenv("PLIANT_RUN_DIR", str(tmp_path / "run"))
    assert paths.server_dir() == str(tmp_path / "run")
