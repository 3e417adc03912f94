"""The words with which launchers call `pliant-launch-agent`, as they call ``ssh``."""

from __future__ import annotations

import pytest

from pliant.client.client_errors import UsageError
from pliant.client.run.launch_agent import main, split


@pytest.mark.parametrize(
    ("words", "host", "command"),
    [
        (["n2", " orted", "-mca", "ess", '"env"'], "n2", ' orted -mca ess "env"'),
        (
            ["-x", "10.0.0.2", '"/usr/bin/proxy"', "--id", "1"],
            "10.0.0.2",
            '"/usr/bin/proxy" --id 1',
        ),
        (["-q", "-x", "-p", "22", "me@n2", "proxy"], "n2", "proxy"),
        (["n2", "-l", "me", "-o", "X", "-oY", "--", "-c", "true"], "n2", "-c true"),
    ],
)
def test_words_of_ssh(words: list[str], host: str, command: str) -> None:
    assert split(words) == (host, command)


@pytest.mark.parametrize(
    ("words", "text"), [([], "no host"), (["-l", "me"], "no host"), (["n2", "-x"], "no command")]
)
def test_incomplete_words(words: list[str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        split(words)


def test_outside_of_a_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PLIANT_STEP_SOCKET", raising=False)
    assert main(["n2", "true"]) == 2
    assert "only in the script of a job" in capsys.readouterr().err
