"""Addresses, and who may stand behind a socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pliant.protos.address import (
    TcpAddress,
    UnixAddress,
    dial_target,
    parse_address,
    prepare_socket,
)
from pliant.protos.daemons.private_paths import PrivateSocket, UntrustedPathError, open_private


@pytest.mark.parametrize("text", ["unix:/run/grpc.sock", "127.0.0.1:7000", "[::1]:0", "host:65535"])
def test_an_address_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_address(text)) == text


def test_kinds_of_addresses() -> None:
    assert parse_address("unix:/a/b") == UnixAddress(Path("/a/b"))
    assert parse_address("[::1]:7") == TcpAddress("::1", 7)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:",
        ":1",
        "host:x",
        "h:65536",
        "h:99999999",
        "h:-1",
        "h:\u0661",
        "unix:",
        "unix:a",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_address(text)


@pytest.fixture
def private(tmp_path: Path) -> Path:
    folder = tmp_path / ("long" * 30)
    folder.mkdir(mode=0o700)
    return folder


def bound(folder: Path) -> socket.socket:
    """Return a socket that listens as a server's does."""
    directory, target = prepare_socket(UnixAddress(folder / "s"))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(target.removeprefix("unix:"))
    os.chmod(folder / "s", 0o600)
    listener.listen()
    os.close(directory)
    return listener


def test_a_socket_of_ones_own_is_reached_whatever_the_length_of_its_path(private: Path) -> None:
    with (
        bound(private),
        dial_target(f"unix:{private}/s") as target,
        socket.socket(socket.AF_UNIX) as link,
    ):
        assert len(target) < 100 < len(str(private))
        link.connect(target.removeprefix("unix:"))


def test_the_socket_of_an_earlier_server_is_replaced(private: Path) -> None:
    bound(private).close()
    bound(private).close()
    (private / "s").unlink()
    (private / "s").touch()
    with pytest.raises(UntrustedPathError, match="is not a socket"):
        prepare_socket(UnixAddress(private / "s"))
    with pytest.raises(UntrustedPathError, match="is not a socket"), PrivateSocket(private / "s"):
        pass


@pytest.mark.parametrize("mode", [0o701, 0o720, 0o755, 0o1777])
def test_a_directory_that_others_may_use_is_refused(private: Path, mode: int) -> None:
    listener = bound(private)
    private.chmod(mode)
    with pytest.raises(UntrustedPathError, match="chmod 700"), dial_target(f"unix:{private}/s"):
        pass
    with pytest.raises(UntrustedPathError, match="chmod 700"):
        prepare_socket(UnixAddress(private / "s"))
    listener.close()


def test_users_may_be_let_into_a_directory_that_they_cannot_change(private: Path) -> None:
    private.chmod(0o755)
    os.close(open_private(private, shared=True))
    private.chmod(0o775)
    with pytest.raises(UntrustedPathError, match="chmod 755"):
        open_private(private, shared=True)


def test_a_socket_that_others_may_use_is_refused(private: Path) -> None:
    with bound(private):
        (private / "s").chmod(0o666)
        with pytest.raises(UntrustedPathError, match="chmod 600"), dial_target(f"unix:{private}/s"):
            pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("which", [".", "s"])
def test_what_another_user_owns_is_refused(private: Path, which: str) -> None:
    with bound(private):
        os.chown(private / which, 4242, 4242)
        with (
            pytest.raises(UntrustedPathError, match="belongs to the user with id 4242"),
            dial_target(f"unix:{private}/s"),
        ):
            pass


def test_a_link_to_a_socket_is_not_followed(private: Path) -> None:
    with bound(private):
        (private / "link").symlink_to(private / "s")
        with (
            pytest.raises(UntrustedPathError, match="is not a socket"),
            dial_target(f"unix:{private}/link"),
        ):
            pass
