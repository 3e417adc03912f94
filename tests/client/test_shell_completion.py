"""Completion for shells: all commands and options, as their parsers have them."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import time
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


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("jobctl si", "signal"),
        ("jobsub --dep", "--dependency"),
        ("pliant wh", "what-if"),
        ("pliant config d", "diff"),
        ("jobctl resize --rel", "--release"),
    ],
)
def test_fish_completes(line: str, word: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "pliant.fish").write_text(script("fish", capsys))
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {tmp_path}/pliant.fish; complete -C '{line}'"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert word in {found.partition("\t")[0] for found in done.stdout.splitlines()}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(
    ("typed", "becomes"),
    [
        ("jobctl si", "jobctl signal"),
        ("jobsub --dep", "jobsub --dependency"),
        ("pliant wh", "pliant what-if"),
        ("pliant config d", "pliant config diff"),
    ],
)
def test_zsh_completes(typed: str, becomes: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "pliant.zsh").write_text(script("zsh", capsys))
    text = zsh_types(
        f"PS1=; autoload -Uz compinit; compinit -u -d {tmp_path}/dump; "
        f"source {tmp_path}/pliant.zsh; echo rea''dy",
        typed,
        becomes,
    )
    assert becomes in text


def zsh_types(prepare: str, typed: str, awaited: str) -> str:
    """Return what an interactive zsh shows when a text is typed, and then the tab key.

    Args:
        prepare: a command that is executed first, and that prints ``ready`` at its end.
        typed: the text.
        awaited: the result ends when this text appears, or after a minute.
    """
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "TERM": "dumb"})
    try:
        os.write(terminal, f"{prepare}\n".encode())
        shown = read_until(terminal, "ready")
        os.write(terminal, f"{typed}\t".encode())
        return shown + read_until(terminal, awaited)
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(terminal)


def read_until(terminal: int, awaited: str) -> str:
    """Return what a terminal shows, until a text appears or a minute has passed."""
    shown = ""
    deadline = time.monotonic() + 60
    while (
        awaited not in shown
        and select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]
    ):
        shown += os.read(terminal, 4096).decode(errors="replace")
    return shown
