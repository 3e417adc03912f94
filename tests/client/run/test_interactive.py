"""What ``pliant run`` refuses outside of a job, and how it says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pliant.client.run.run_command import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PLIANT_JOB", raising=False)


@pytest.mark.parametrize("words", [["--pty", "true"], ["-n", "x", "true"], ["--wrap=a", "true"]])
def test_errors_name_this_command(words: list[str], server: Any, capsys: Capture) -> None:
    try:
        code: object = main(words)
    except SystemExit as ended:
        code = ended.code
    assert code != 0
    error = capsys.readouterr().err
    assert error.startswith("pliant run: ")
    assert "jobsub" not in error
    assert server.requests == []


def test_a_refused_option_of_a_script_names_its_line(
    server: Any, tmp_path: Path, capsys: Capture
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#JOB -n 2\n#JOB --output x\n")
    script.chmod(0o755)
    assert main(["./job.sh"]) == 2
    says = "pliant run: leave out --output, which is in ./job.sh:3: it shows"
    assert capsys.readouterr().err.startswith(says)
    assert main(["--output", "y", "./job.sh"]) == 2
    assert capsys.readouterr().err.startswith("pliant run: leave out --output: it shows")
    assert server.requests == []


def test_an_error_in_a_line_of_a_script_names_it(
    server: Any, tmp_path: Path, capsys: Capture
) -> None:
    for line in ('--name "x', "--pty"):
        (tmp_path / "job.sh").write_text(f"#!/bin/sh\n#JOB {line}\n")
        assert main(["./job.sh"]) == 2
        assert capsys.readouterr().err.startswith("pliant run: ./job.sh:2: ")
    assert server.requests == []
