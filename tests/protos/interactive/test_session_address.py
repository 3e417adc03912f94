"""Who can connect to the session of an interactive job."""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.client.run.session import create_identity
from pliant.protos.interactive.session_address import SessionAddress

pytestmark = pytest.mark.timeout(60)


def over_tls(port: int) -> SessionAddress:
    key, certificate = create_identity()
    return SessionAddress(False, 24, 80, ("127.0.0.1",), port, key, certificate)


def answer(address: SessionAddress, listener: socket.socket, results: list[bytes]) -> None:
    """Accept connections until one has proved itself, and store the bytes that it sends."""
    while not results:
        link, _ = listener.accept()
        try:
            with address.accept(link) as proven:
                results.append(proven.recv(100))
        except OSError:
            link.close()


def test_a_socket_in_a_deep_folder(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 40)
    folder.mkdir(0o700)
    address, results = SessionAddress(True, 30, 90), list[bytes]()
    address.write(folder)
    with address.listen(folder) as listener:
        thread = threading.Thread(target=answer, args=[address, listener, results], daemon=True)
        thread.start()
        found = SessionAddress.read(folder)
        with found.connect(folder) as link:
            link.sendall(b"local")
        thread.join()
    assert (found, results) == (address, [b"local"])


def test_only_the_key_of_the_session_opens_a_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = over_tls(listener.getsockname()[1])
        stranger = over_tls(address.port)
        results: list[bytes] = []
        thread = threading.Thread(target=answer, args=[address, listener, results], daemon=True)
        thread.start()
        with pytest.raises(OSError, match="certificate"):
            stranger.connect(tmp_path)
        # Somebody who has only seen the certificate cannot use it.
        half = replace(address, key=stranger.key, certificate=stranger.certificate)
        with pytest.raises(OSError, match="certificate"):
            half.connect(tmp_path)
        with address.connect(tmp_path) as link:
            link.sendall(b"remote")
        thread.join()
    assert results == [b"remote"]


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(OSError, match=f"127.0.0.1 port {port}"):
        over_tls(port).connect(tmp_path)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    SessionAddress(False).write(tmp_path)
    os.chmod(tmp_path / "session.json", 0o640)
    with pytest.raises(PermissionError):
        SessionAddress.read(tmp_path)
