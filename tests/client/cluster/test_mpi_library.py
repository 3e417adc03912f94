"""Where there is no MPI library, the user hears what helps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pliant.client.cluster import mpi_library
from pliant.client.cluster.mpi_library import LibraryProbe, library_was_missing
from pliant.client.commands.jobsub import report_end

SAID = "RuntimeError: cannot load MPI library\nlibmpi.so: no such file\n"


def test_a_library_that_is_there_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_library, "_PROBE", "pass")
    with LibraryProbe() as trial:
        assert trial.warnings(60.0) == []
        assert trial.warnings() == []


def test_a_library_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_library, "_PROBE", "raise RuntimeError('cannot load MPI library')")
    with LibraryProbe() as trial:
        (text,) = trial.warnings(60.0)
    assert "pip install 'pliant[mpich]'" in text


def test_a_trial_that_takes_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_library, "_PROBE", "import signal; signal.pause()")
    with LibraryProbe() as trial:
        assert trial.warnings(0.01) == []
    with LibraryProbe():
        pass


def test_a_job_that_found_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "pliant-1.out"
    job = {"id": 1, "state": "FAILED", "exit_code": 1, "type": "mpi", "stdout": str(output)}
    for text, lines in [(None, 1), ("Segmentation fault\n", 1), (SAID, 2)]:
        if text is not None:
            output.write_text(text)
        assert report_end(job) == 1
        said = capsys.readouterr().err.splitlines()
        assert len(said) == lines
    assert said[1].startswith("jobsub: it found no MPI library: install one with `pip install")


@pytest.mark.timeout(30)
def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert not library_was_missing(str(pipe))  # nobody writes to it
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(pipe, os.O_WRONLY)
    try:
        os.write(writer, SAID.encode())
        assert not library_was_missing(str(pipe))
        assert os.read(reader, 4096) == SAID.encode()  # left for the one who reads the pipe
    finally:
        os.close(reader)
        os.close(writer)
    # A terminal without input, as a device whose reading does not return.
    master, terminal = os.openpty()
    try:
        assert not library_was_missing(os.ttyname(terminal))
    finally:
        os.close(master)
        os.close(terminal)
