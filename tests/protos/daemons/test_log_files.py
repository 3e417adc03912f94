"""A log file that was renamed or removed is opened again under its name."""

from __future__ import annotations

import os
from pathlib import Path

from pliant.protos.daemons.log_files import LogFile


def test_a_removed_file_is_made_again_under_its_name(tmp_path: Path) -> None:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    log = LogFile(descriptor)
    path.unlink()
    log.reopen()
    os.write(descriptor, b"a line\n")
    os.close(descriptor)
    assert path.read_bytes() == b"a line\n"


def test_a_file_that_never_had_a_name_gets_none(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_TMPFILE | os.O_WRONLY, 0o600)
    LogFile(descriptor).reopen()
    os.close(descriptor)
    assert list(tmp_path.iterdir()) == []
