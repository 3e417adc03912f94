"""The documents tell the truth where a program can check it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from pliant.core.model.lifecycle import diagram
from testkit import wait_until

ROOT = Path(__file__).parent.parent
STRATEGIES = ROOT / "docs" / "writing-a-strategy.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"


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


def section(title: str, page: Path = STRATEGIES) -> str:
    return next(part for part in page.read_text().split("\n## ") if part.startswith(title))


def write_programs(page: Path, folder: Path) -> None:
    """Write each program of a page into the file that its first line names."""
    for code in blocks(page.read_text(), "python"):
        first = re.match(r"# (\w+\.py)\n", code)
        assert first is not None, "the first line of a program is its name"
        (folder / first[1]).write_text(code)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the page's files and the examples; pip installs into it, offline."""
    write_programs(STRATEGIES, tmp_path)
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
    """Type commands one after the other, each of which must succeed; return what they print.

    The time limit is that of the test: how long a command takes depends on the machine.
    """
    script = "\n".join(f"{command} || exit 1" for command in typed)
    done = subprocess.run(
        ["bash", "-xc", script],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_what_is_typed_to_write_a_strategy(desk: Path) -> None:
    page = STRATEGIES.read_text().replace(section("On a cluster"), "")
    said = run(desk, commands(page))
    assert "4 passed" in said
    assert "strategy user-shares has no option 'least'; it has: most" in said
    assert said.count("300  jobs that did all of their work") == 3
    assert "jobs that the strategy refused" in said


@pytest.mark.cluster
@pytest.mark.timeout(400)
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
    links = re.findall(r"\]\(([^)#]+)", page)
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


# ---------------------------------------------------------------- the tutorial


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the programs of the tutorial."""
    write_programs(TUTORIAL, tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    return tmp_path


@pytest.mark.mpi
@pytest.mark.timeout(400)
def test_both_programs_of_the_tutorial_print_the_same(bench: Path) -> None:
    typed = commands(section("The program", TUTORIAL) + section("Three questions", TUTORIAL))
    assert len(typed) == 4
    assert run(bench, typed).count("heat left: 63661.9698\n") == 4


#: What the reader waits for after a command: of which job, a state and a number of processes.
THEN = {
    "--prefer 2 -o rod.out": (1, "RUNNING", 2),
    "jobctl resize 1 8": (1, "RUNNING", 8),
    "jobctl resize 1 3": (1, "RUNNING", 3),
    "jobctl suspend 1": (1, "SUSPENDED", 3),
    "jobctl resume 1": (1, "RUNNING", 2),
    "--prefer 2 -o short.out": (2, "RUNNING", 2),
    "jobctl resize 2 4": (2, "RUNNING", 4),
    "jobctl resize 2 1": (2, "COMPLETED", 1),
}

#: Steps of the second job: fewer than on the page, and long enough to be resized on its way.
SHORTER = "4000"


def pace(program: Path) -> None:
    """Let the ranks of a program sleep in each step: they compute for as long as the test waits."""
    text = program.read_text()
    step = "        u = rod.with_halo\n"
    assert step in text
    paced = text.replace(step, f"        time.sleep(0.0025)\n{step}")
    program.write_text(paced.replace("import sys\n", "import sys\nimport time\n"))


def is_so(folder: Path, number: int, state: str, size: int) -> bool:
    listed = run(folder, [f"jobstat --json {number} 2>/dev/null"])
    (job,) = json.loads(listed.split("\n", 1)[1])
    registered = state != "RUNNING" or job["class"] == "malleable"
    return (job["state"], job["size"]) == (state, size) and registered


@pytest.mark.cluster
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("state_dir")
def test_what_is_typed_in_the_tutorial(bench: Path) -> None:
    page = TUTORIAL.read_text()
    typed = commands(page[page.index("## On a cluster") :].replace(" 60000\n", f" {SHORTER}\n"))
    pace(bench / "rod.py")
    said = ""
    try:
        for command in typed:
            said += run(bench, [command])
            for part in (each for each in THEN if each in command):
                there = partial(is_so, bench, *THEN[part])
                wait_until(there, timeout=150, every=0.4, what=command)
    finally:
        subprocess.run(["pliant", "down"], check=False, capture_output=True, timeout=60)
    resized = ["2 -> 8 processors", "8 -> 3 processors", "2 -> 4 processors", "4 -> 1 processor"]
    assert [text for text in resized if text not in said] == []
    heat = re.findall(r"^heat left: .*$", said, re.M)
    assert len(heat) == 2
    assert heat[0] == heat[1]
    assert "down: all is gone" in said


def test_the_tutorial_waits_where_its_reader_must() -> None:
    page = " ".join(commands(TUTORIAL.read_text()))
    assert [part for part in THEN if part not in page] == []


def test_the_tutorial_changes_at_most_13_lines() -> None:
    plain, rod = blocks(TUTORIAL.read_text(), "python")
    new = [line for line in rod.splitlines() if line.strip() and line not in plain.splitlines()]
    assert len(new) <= 13, new
