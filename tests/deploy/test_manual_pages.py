"""Manual pages: one for each command and daemon, with each of its options."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pliant.client.commands.entry_points import find_commands
from pliant.deploy.deploy_command import main
from pliant.deploy.man_command import make_pages
from pliant.deploy.manual_page import escape, make_page


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return dict(make_pages())


def test_every_command_has_a_page(pages: dict[str, str]) -> None:
    scripts = {"pliant", "jobsub", "jobstat", "jobdel", "jobctl", "jobacct", "nodestat"}
    scripts.add("pliant-launch-agent")
    commands = {f"pliant-{name}" for name in (*find_commands(), "node-helper")}
    assert set(pages) == scripts | commands
    for name, page in pages.items():
        assert page.startswith(f'.TH "{escape(name.upper())}" "1"')
        if name != "pliant":
            assert escape(name) in pages["pliant"]


@pytest.mark.parametrize(
    ("page", "option"),
    [
        ("pliant-server", "--recover"),
        ("pliant-nodectl", "--end-jobs"),
        ("pliant-node-helper", "--state-dir DIR"),
        ("pliant-node", "--address HOST:PORT"),
        ("pliant-login-agent", "--users-dir DIR"),
        ("jobsub", "--mem-per-cpu"),
        ("pliant-deploy", "--listen HOST:PORT"),
        ("pliant-deploy", "--rollback"),
        ("pliant-deploy", "--glibc VERSION"),
    ],
)
def test_options_are_on_the_page(page: str, option: str, pages: dict[str, str]) -> None:
    assert escape(option) in pages[page]


def test_text_of_a_parser_cannot_become_a_request_of_roff() -> None:
    parser = argparse.ArgumentParser(prog="x", description=".so /etc/passwd\n'quoted\\n 50%")
    page = make_page("x", parser, "1", "a command")
    assert "\n.so" not in page
    assert "\\&.so /etc/passwd\n\\&'quoted\\en 50%" in page


@pytest.mark.skipif(shutil.which("man") is None, reason="needs man")
def test_man_renders_every_page(tmp_path: Path) -> None:
    assert main(["man", "--output", str(tmp_path)]) == 0
    for page in sorted(tmp_path.iterdir()):
        done = subprocess.run(
            ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", str(page)],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": "/usr/bin:/bin", "MANWIDTH": "100", "LC_ALL": "C.UTF-8"},
        )
        assert done.stdout.strip()
        assert not re.search(r"warning|error", done.stderr), done.stderr
