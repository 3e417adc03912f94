"""Completion for shells: all commands and options, as their parsers have them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pliant.client.shell_completion import SHELLS, all_words, main

Capture = pytest.CaptureFixture[str]


def script(shell: str, capsys: Capture) -> str:
    assert main([shell]) == 0
    return capsys.readouterr().out


def complete(text: str, folder: Path, *words: str) -> set[str]:
    """Return what bash offers for the last word of a command line."""
    (folder / "pliant.bash").write_text(text)
    line = " ".join(f"'{word}'" for word in words)
    code = f"""source {folder}/pliant.bash
    COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}
    _pliant
    echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_every_command_is_there() -> None:
    found = {each.command: each.words for each in all_words()}
    assert {"jobsub", "jobstat", "jobacct", "pliant server", "pliant simulate"} <= set(found)
    assert {"--dependency", "--wrap", "-n"} <= set(found["jobsub"])
    assert {"hold", "why"} <= set(found["jobctl"])
    assert "--release" in found["jobctl resize"]
    assert {"stats", "audit", "config", "up"} <= set(found["pliant"])


@pytest.mark.parametrize("shell", SHELLS)
def test_the_scripts_have_no_errors(shell: str, tmp_path: Path, capsys: Capture) -> None:
    text = script(shell, capsys)
    assert "dependency" in text
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "completion").write_text(text)
    done = subprocess.run(
        [shell, "-n", str(tmp_path / "completion")],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_bash_completes_commands_actions_and_options(tmp_path: Path, capsys: Capture) -> None:
    text = script("bash", capsys)
    assert complete(text, tmp_path, "jobsub", "--dep") == {"--dependency"}
    assert {"hold", "history"} == complete(text, tmp_path, "jobctl", "h")
    assert complete(text, tmp_path, "jobctl", "resize", "7", "--rel") == {"--release"}
    assert complete(text, tmp_path, "pliant", "config", "sh") == {"show"}
    assert complete(text, tmp_path, "pliant", "config", "show", "--cha") == {"--changed"}
