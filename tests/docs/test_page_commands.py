"""Every command of the documentation runs, or its page says why it does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pagekit.wait_for
from pagekit import read_blocks, read_marks
from testkit import ROOT

#: Folders of pages that programs write.
WRITTEN = {"generated", "experiment-report"}
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if not WRITTEN & {*path.parts}),
]
#: Files that are written only for programs that other tests run need no shell.
TYPED = [page for page in PAGES if any("<<'END OF" not in b.script for b in read_blocks(page))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which commands are typed; ``wait_for`` is among the programs."""
    programs = tmp_path / "programs"
    programs.mkdir()
    wait_for = programs / "wait_for"
    wait_for.write_text(f'#!/bin/sh\nexec {sys.executable} {pagekit.wait_for.__file__} "$@"\n')
    wait_for.chmod(0o755)
    path = [str(Path(sys.executable).parent), str(programs), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    work = tmp_path / "work"
    work.mkdir()
    return work


def scripts(page: Path) -> Iterator[str]:
    """Yield the parts of the script of a page, each with the line of the page for failures."""
    marks = read_marks(page)
    if marks.cluster is not None:
        yield f"pliant up --detach {' '.join(marks.cluster)}"
    for block in read_blocks(page):
        yield f": {page.name}, line {block.line}\n{block.script}"


@pytest.mark.cluster
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("state_dir")
@pytest.mark.parametrize("page", TYPED, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_typed_on_a_page(page: Path, folder: Path) -> None:
    for program in read_marks(page).needs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    try:
        done = subprocess.run(
            ["bash", "-exc", "\n".join(scripts(page))],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
        )
    finally:
        subprocess.run(["pliant", "down"], check=False, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_tests_that_run_commands_of_pages_exist() -> None:
    named = {test for page in PAGES for test in read_marks(page).tests}
    assert [test for test in sorted(named) if not (ROOT / test).exists()] == []


def test_every_reason_is_given() -> None:
    reasons = [reason for page in PAGES for reason in read_marks(page).reasons]
    assert [reason for reason in reasons if len(reason.split()) < 2] == []
