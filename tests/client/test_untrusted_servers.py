"""A client sends nothing to a socket that another account could have put there."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pliant.client import site_settings
from pliant.client.client_errors import UntrustedServerError
from pliant.client.connection import Connection
from testkit import wait_until
from userkit import ALICE, BOB, ChildFailedError, held_as, needs_root, open_folder, run_as

pytestmark = needs_root


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(site_settings, "SITE_FILE", "/nonexistent/client.yaml")
    monkeypatch.delenv("PLIANT_SERVER_USER", raising=False)
    with open_folder() as path:
        users = path / "users"
        users.mkdir()
        users.chmod(0o755)
        yield users


_held: list[socket.socket] = []


def listen(folder: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "server.sock"))
    os.chmod(folder / "server.sock", 0o666)
    listener.listen()
    _held.append(listener)


def ping(folder: Path) -> None:
    Connection(str(folder), timeout_s=5).request("ping")


@pytest.mark.parametrize("client", [0, ALICE], ids=["root", "alice"])
def test_a_socket_in_a_folder_of_another_account(folder: Path, client: int) -> None:
    os.chown(folder, BOB, BOB)
    with (
        held_as(BOB, partial(listen, folder)),
        pytest.raises(ChildFailedError, match=r"UntrustedServerError: .* with id 5002"),
    ):
        run_as(client, partial(ping, folder))


def test_a_socket_of_another_account_in_a_trusted_folder(folder: Path) -> None:
    os.chown(folder, BOB, BOB)
    with held_as(BOB, partial(listen, folder)):
        os.chown(folder, 0, 0)
        with pytest.raises(UntrustedServerError, match="belongs to the user with id 5002"):
            Connection(str(folder)).request("ping")


def listen_and_record(folder: Path) -> None:
    """Listen, and write what the first client sends into the file ``draft``."""
    listen(folder)
    draft = open(folder / "draft", "wb")  # noqa: SIM115 - before the folder gets another owner

    def serve() -> None:
        link, _ = _held[-1].accept()
        with link, draft:
            while data := link.recv(1000):
                draft.write(data)
            draft.write(b"END")

    threading.Thread(target=serve, daemon=True).start()


def test_nothing_is_sent_to_a_process_of_another_account(folder: Path) -> None:
    """The socket was given to root after another account began to listen on it."""
    os.chown(folder, BOB, BOB)
    with held_as(BOB, partial(listen_and_record, folder)):
        os.chown(folder, 0, 0)
        os.chown(folder / "server.sock", 0, 0)
        with pytest.raises(UntrustedServerError, match="runs as the user with id 5002") as caught:
            Connection(str(folder)).request("submit", job={"env": {"SECRET": "x"}})
        wait_until(lambda: (folder / "draft").read_bytes() != b"", what="the end of the connection")
        assert (folder / "draft").read_bytes() == b"END"
    assert "nothing was sent" in str(caught.value)
    assert caught.value.code == "untrusted-server"


@pytest.mark.parametrize("mode", [0o775, 0o777, 0o1777])
def test_a_folder_that_others_can_change(folder: Path, mode: int) -> None:
    listen(folder)
    folder.chmod(mode)
    with pytest.raises(UntrustedServerError, match="other users may use it"):
        Connection(str(folder)).request("ping")


def test_the_account_that_the_environment_names_is_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(folder, BOB, BOB)

    monkeypatch.setenv("PLIANT_SERVER_USER", str(BOB))
    with (
        held_as(BOB, partial(listen, folder)),
        pytest.raises(ChildFailedError, match="SilentServerError"),
    ):
        run_as(ALICE, partial(ping, folder))
