"""``pliant node join --account``: mistakes are refused before anything is written.

The whole path is tested in tests/e2e/test_systemd.py, where root has a host of its own.
"""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path

import pytest

import pliant.client.node_join_as_root as account_joining
from pliant.client.client_errors import ClientError, UsageError
from pliant.client.node_join_as_root import join_for_account
from pliant.protos.identity import keys

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root joins for other accounts")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(account_joining, "SETTINGS_DIR", tmp_path / "etc")
    return tmp_path / "etc"


def make_record(tmp_path: Path, **changes: str) -> dict[str, str]:
    return {"role": "node", "node": "n7", "cluster": "blue", "directory": str(tmp_path), **changes}


def write_key(folder: Path) -> str:
    text = keys.format_public_key(keys.create_order_key().public_key())
    (folder / "order.pub").write_text(f"{text}\n")
    return text


def test_only_root_may_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UsageError, match="--account"):
        join_for_account("nobody", "token", "")


@as_root
def test_an_account_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="--account"):
        join_for_account("no-such-account", "token", "")


@as_root
def test_a_failed_attempt_writes_nothing(
    settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIANT_STATE_DIR", str(tmp_path / "state"))
    with pytest.raises(ClientError):
        join_for_account("nobody", "not a token", "")
    assert (tmp_path / "state").stat().st_uid == pwd.getpwnam("nobody").pw_uid
    assert not settings.exists()


def test_the_helper_gets_names_and_key(settings: Path, tmp_path: Path) -> None:
    key = write_key(tmp_path)
    written = account_joining._set_up_helper(make_record(tmp_path), "pliant")
    assert written == [settings / "order.pub", settings / "helper.json"]
    assert (settings / "order.pub").read_text() == key
    found = json.loads((settings / "helper.json").read_text())
    assert found == {"cluster": "blue", "node": "n7", "account": "pliant"}
    assert {path.stat().st_mode & 0o777 for path in written} == {0o644}


def test_allowed_users_are_kept(settings: Path, tmp_path: Path) -> None:
    write_key(tmp_path)
    settings.mkdir()
    (settings / "helper.json").write_text('{"node": "old", "system_users": [33]}')
    account_joining._set_up_helper(make_record(tmp_path), "pliant")
    found = json.loads((settings / "helper.json").read_text())
    assert (found["node"], found["system_users"]) == ("n7", [33])


@pytest.mark.parametrize("content", ["secret of root\n", ""])
def test_only_a_key_is_copied(content: str, settings: Path, tmp_path: Path) -> None:
    (tmp_path / "order.pub").write_text(content)
    with pytest.raises(ClientError):
        account_joining._set_up_helper(make_record(tmp_path), "pliant")
    assert not settings.exists()


def test_a_link_is_not_followed(settings: Path, tmp_path: Path) -> None:
    write_key(tmp_path)
    (tmp_path / "order.pub").rename(tmp_path / "other")
    (tmp_path / "order.pub").symlink_to(tmp_path / "other")
    with pytest.raises(ClientError):
        account_joining._set_up_helper(make_record(tmp_path), "pliant")
    assert not settings.exists()


def test_a_wrong_name_is_refused(settings: Path, tmp_path: Path) -> None:
    write_key(tmp_path)
    with pytest.raises(ClientError, match="node"):
        account_joining._set_up_helper(make_record(tmp_path, node="../x"), "pliant")
    assert not settings.exists()
