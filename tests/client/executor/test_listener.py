"""Connections of workers: which are admitted, and over what."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
from collections.abc import Iterator

import pytest

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.executor.listener import Contact, Listener, connect


@pytest.fixture(name="listener", params=[None, "127.0.0.1"], ids=["unix", "tls"])
def _listener(request: pytest.FixtureRequest) -> Iterator[Listener]:
    listener = Listener(["127.0.0.1", "localhost"], request.param)
    yield listener
    listener.close()
    assert not listener.contact.path or not os.path.exists(listener.contact.path)


def admit(listener: Listener, results: list[object]) -> threading.Thread:
    """Accept a connection in a thread; note what it was or why it was refused."""

    def accept() -> None:
        link, _ = listener.sockets[0].accept()
        try:
            with listener.admit(link) as admitted:
                results.append(admitted.recv(5))
                admitted.sendall(b"hello")
        except OSError as error:
            results.append(error)
        finally:
            link.close()

    thread = threading.Thread(target=accept)
    thread.start()
    return thread


def test_a_worker_with_the_secret_is_admitted(listener: Listener) -> None:
    results: list[object] = []
    thread = admit(listener, results)
    with connect(listener.contact) as link:
        link.sendall(b"task?")
        assert link.recv(5) == b"hello"
    thread.join()
    assert results == [b"task?"]


def test_another_secret_is_refused_on_both_sides(listener: Listener) -> None:
    results: list[object] = []
    thread = admit(listener, results)
    contact = listener.contact._replace(secret="00" * 32)
    with pytest.raises(OSError, match="does not prove"):
        _connect_once(contact)
    thread.join()
    assert isinstance(results[0], OSError)


def _connect_once(contact: Contact) -> None:
    from pliant.client.executor import listener

    listener._connect(contact, contact.places[0]).close()


def test_bytes_that_prove_nothing_are_refused(listener: Listener) -> None:
    results: list[object] = []
    thread = admit(listener, results)
    place = listener.contact.places[0]
    family = socket.AF_UNIX if isinstance(place, str) else socket.AF_INET
    with socket.socket(family) as link:
        link.connect(place)
        link.sendall(b"\x80\x05" + b"x" * 100)
        with contextlib.suppress(OSError):  # the listener may have closed the connection by now
            link.shutdown(socket.SHUT_WR)
        thread.join()
    assert isinstance(results[0], OSError)


def test_nodes_of_this_host_need_only_a_private_unix_socket() -> None:
    listener = Listener(["127.0.0.1"], None)
    try:
        contact = listener.contact
        assert (contact.addresses, contact.key) == ([], "")
        assert stat.S_IMODE(os.stat(os.path.dirname(contact.path)).st_mode) == 0o700
    finally:
        listener.close()


@pytest.mark.parametrize("address", ["", ":7000", "127.0.0.1:x", "127.0.0.1:70000", 7000])
def test_a_malformed_address_is_named(address: str) -> None:
    with pytest.raises(UsageError, match=r"address: expected .* 10\.0\.0\.1:7010"):
        Listener([], address).close()


def test_an_address_of_another_host_and_nodes_that_cannot_be_found() -> None:
    with pytest.raises(ClientError, match=r"cannot listen on 192\.0\.2\.1: .*address="):
        Listener([], "192.0.2.1")
    with pytest.raises(ClientError, match=r"no way .* to the nodes n\.invalid .*address="):
        Listener(["n.invalid"], None)


def test_a_worker_whose_executor_has_ended_gives_up(listener: Listener) -> None:
    listener.close()
    with pytest.raises(ConnectionError, match=r"refused|No such file"):
        connect(listener.contact)
