"""The documents tell the truth where a program can check it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pliant.core.lifecycle import diagram

ROOT = Path(__file__).parent.parent
STRATEGIES = ROOT / "docs" / "writing-a-strategy.md"


def test_the_life_cycle_diagram_is_the_table() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    start = text.index("```mermaid\n") + len("```mermaid\n")
    assert text[start : text.index("\n```", start)] == diagram()


# ---------------------------------------------------------------- writing a strategy


def blocks(text: str, language: str) -> list[str]:
    """Return what is fenced as this language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def commands(text: str) -> list[str]:
    """Return what is typed in the consoles of a page, continued lines together."""
    lines = "".join(blocks(text, "console"))
    return [each.strip() for each in re.split(r"^\$ ", lines, flags=re.M) if each.strip()]


def section(title: str) -> str:
    text = STRATEGIES.read_text()
    return next(part for part in text.split("\n## ") if part.startswith(title))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the page's files and the examples; pip installs into it, offline."""
    for code in blocks(STRATEGIES.read_text(), "python"):
        first = re.match(r"# (\w+\.py)\n", code)
        assert first is not None, "the first line of a program is its name"
        (tmp_path / first[1]).write_text(code)
    shutil.copytree(ROOT / "examples" / "strategies", tmp_path / "examples" / "strategies")
    for name, value in {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(tmp_path),
        "PIP_TARGET": str(tmp_path),
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # which says that there is none
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def run(folder: Path, typed: list[str]) -> str:
    """Type commands one after the other, each of which must succeed; return what they print."""
    script = "\n".join(f"{command} || exit 1" for command in typed)
    done = subprocess.run(
        ["bash", "-xc", script],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
def test_what_is_typed_to_write_a_strategy(desk: Path) -> None:
    page = STRATEGIES.read_text().replace(section("On a cluster"), "")
    said = run(desk, commands(page))
    assert "4 passed" in said
    assert "strategy user-shares has no option 'least'; it has: most" in said
    assert said.count("300  jobs that did all of their work") == 3
    assert "jobs that the strategy refused" in said


@pytest.mark.cluster
def test_what_is_typed_to_use_it_on_a_cluster(desk: Path, state_dir: Path) -> None:
    install = next(each for each in commands(STRATEGIES.read_text()) if each.startswith("pip"))
    try:
        said = run(desk, [install, *commands(section("On a cluster"))])
    finally:
        subprocess.run(["pliant", "down"], check=False, capture_output=True, timeout=60)
    assert "strategy user-shares" in said
    assert "down: all is gone" in said
    assert "fault" not in (state_dir / "server.log").read_text()


def test_the_page_shows_the_example_as_it_is() -> None:
    project = (ROOT / "examples" / "strategies" / "user_shares" / "pyproject.toml").read_text()
    assert blocks(STRATEGIES.read_text(), "toml")[0] in project


def test_files_that_the_page_names_are_there() -> None:
    page = STRATEGIES.read_text()
    named = re.findall(r"`(?:core|strategies|tests)/\w+\.py`", page)
    assert [name for name in named if not (ROOT / name.strip("`")).exists()] == []
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
