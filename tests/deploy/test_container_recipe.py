"""The recipe of the container image: its files, its commands, and the script that it runs.

No container engine is needed here, so the image itself is not built.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploykit.wheels import write_checkout_wheel
from pliant.client.commands.entry_points import find_commands
from testkit import ROOT

RECIPE = ROOT / "deploy/packaging/container"
SETTINGS = ROOT / "deploy/units/daemon.env"


def instructions() -> list[tuple[str, str]]:
    """Return the keyword and the text of each instruction."""
    text = (RECIPE / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def values(keyword: str) -> list[str]:
    return [rest for word, rest in instructions() if word == keyword]


def test_copied_files_exist_and_all_files_are_used() -> None:
    copied = {words.split()[0] for words in values("COPY")}
    assert {path.name for path in RECIPE.iterdir()} == copied | {"Containerfile"}


def test_nothing_is_fetched_at_build_time() -> None:
    """The base is the only thing that does not come from the two folders of the build."""
    assert values("FROM") == ["${BASE}"]
    assert values("ADD") == []
    script = (RECIPE / "install").read_text()
    assert "--no-index" in script
    for command in (*values("RUN"), script):
        assert not re.search(r"\b(apt|apt-get|curl|wget|git|https?)\b", command)


def test_the_daemons_run_without_root_and_keep_their_state_in_a_volume() -> None:
    (user,) = values("USER")
    assert user == "970:970"
    (folder,) = values("VOLUME")
    (settings,) = values("ENV")
    own = dict(word.split("=", 1) for word in settings.split())
    units = [line for line in SETTINGS.read_text().splitlines() if not line.startswith("#")]
    assert own.items() >= dict(line.split("=", 1) for line in units).items()
    assert own["PLIANT_STATE_DIR"] == folder
    # As root before the change of the user, so that a new volume belongs to the account.
    made = [text for word, text in instructions() if word == "RUN" and "install -d" in text]
    assert len(made) == 1
    assert {own["PLIANT_STATE_DIR"], own["PLIANT_RUN_DIR"]} <= set(made[0].split())


def test_the_entry_point_is_the_command_with_both_daemons() -> None:
    assert json.loads(values("ENTRYPOINT")[0]) == ["pliant"]
    assert {"server", "nodectl", "cluster", "node"} <= set(find_commands())


def test_the_script_installs_a_wheelhouse(tmp_path: Path) -> None:
    write_checkout_wheel(tmp_path / "wheels", "2.0rc1")
    done = install(tmp_path / "wheels", tmp_path / "prefix", sys.executable)
    assert (done.returncode, done.stdout) == (0, "pliant 2.0rc1\n"), done.stderr
    again = install(tmp_path / "wheels", tmp_path / "prefix", sys.executable)
    assert again.returncode == 1
    assert "exists" in again.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "expected: install WHEELS"),
        (["{folder}", "{folder}/prefix", "no-such-python"], "no-such-python is not installed"),
        (["{folder}", "{folder}/prefix"], "has no wheel of Pliant"),
    ],
)
def test_wrong_arguments_are_named(words: list[str], error: str, tmp_path: Path) -> None:
    done = install(*(word.format(folder=tmp_path) for word in words))
    assert done.returncode == 1
    assert error in done.stderr
    assert not (tmp_path / "prefix").exists()


def install(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", RECIPE / "install", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
