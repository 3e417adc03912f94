"""Records reach the journal with their fields, and standard error if there is no journal."""

from __future__ import annotations

import logging
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.protos.daemons import systemd_journal
from pliant.protos.daemons.log_handlers import JournalHandler, LogHandler, make_log_handler


def decode(data: bytes) -> dict[str, str]:
    """Read a record as the journal does."""
    fields = {}
    while data:
        line, _, data = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (size,) = struct.unpack("<Q", data[:8])
            value, data = data[8 : 8 + size], data[9 + size :]
        fields[name.decode()] = value.decode()
    return fields


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(str(tmp_path / "journal"))
    sock.settimeout(30)
    yield sock
    sock.close()


@pytest.fixture
def handler(tmp_path: Path) -> Iterator[JournalHandler]:
    target = systemd_journal.Journal({"PLIANT_NODE": "n7"}, str(tmp_path / "journal"))
    handler = JournalHandler(target)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    yield handler
    handler.close()


def test_a_record_has_its_fields(listener: socket.socket, handler: JournalHandler) -> None:
    record = logging.LogRecord("pliant.x", logging.WARNING, "a.py", 7, "to %s", ("n8",), None)
    handler.handle(record)
    fields = decode(listener.recv(1 << 16))
    assert fields["MESSAGE"] == "to n8"
    assert fields["PRIORITY"] == "4"
    assert fields["PLIANT_NODE"] == "n7"
    assert (fields["LOGGER"], fields["CODE_FILE"], fields["CODE_LINE"]) == ("pliant.x", "a.py", "7")


def test_lines_and_other_fields_stay_in_one_value() -> None:
    fields = {"MESSAGE": "first\nPRIORITY=0\n", "PRIORITY": "6"}
    assert decode(systemd_journal.encode_fields(fields)) == fields


def test_a_long_value_is_cut() -> None:
    found = decode(systemd_journal.encode_fields({"MESSAGE": "x" * (1 << 20)}))
    assert len(found["MESSAGE"]) == systemd_journal.MAX_VALUE_BYTES


def test_without_a_journal_the_record_goes_to_standard_error(
    capsys: pytest.CaptureFixture[str], handler: JournalHandler
) -> None:
    record = logging.LogRecord("x", logging.ERROR, "a.py", 1, "lost disk", (), None)
    handler.handle(record)
    assert "lost disk" in capsys.readouterr().err


def test_the_stream_of_the_journal_is_recognised(tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb") as file:
        found = os.fstat(file.fileno())
        assert systemd_journal.is_journal(file.fileno(), f"{found.st_dev}:{found.st_ino}")
        assert not systemd_journal.is_journal(file.fileno(), "")
        assert not systemd_journal.is_journal(file.fileno(), f"{found.st_dev}:1")
    assert not systemd_journal.is_journal(9999, "1:1")


def test_a_daemon_without_a_journal_writes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    handler = make_log_handler("pliant-server")
    assert type(handler) is LogHandler
