"""Blocks of a page: commands to run, files to write, and what comments say about them.

A test runs all commands of a page in order, in one shell. HTML comments change that:

- ``<!-- not run: REASON -->`` before a block: the block is not run.
- ``<!-- run by FILE -->`` before a block: another test runs this block.
- With ``: all commands of this page`` at the end, these two comments hold for the whole page.
- ``<!-- needs PROGRAM -->``: the page is skipped where this program is not installed.
- ``<!-- cluster: OPTIONS -->``: a cluster is started with these options of ``pliant up`` before the
  first command. A page without this comment starts its cluster itself, or needs none.
- ``<!-- exits CODE -->`` before a block: its last command exits with this code, not with 0.
- ``<!-- test: COMMAND -->``: this command is run here, too, but readers do not see it.

A block whose first line is ``# FILE`` or ``/* FILE */`` is written into this file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SHELLS = ("bash", "console", "sh")

_PART = re.compile(
    r"^<!-- (?P<comment>.*?) -->$|^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
_FILE = re.compile(r"(?:#|/\*|//) ([\w.-]+\.\w+)(?: \*/)?\n")


@dataclass(frozen=True)
class Block:
    """A block of a page that a test runs.

    Attributes:
        script: what the shell runs.
        line: the number of its first line on the page.
    """

    script: str
    line: int


@dataclass(frozen=True)
class Marks:
    """What the comments of a page say about the whole page, and why blocks are not run.

    Attributes:
        cluster: options of ``pliant up``, or None if no cluster is started.
        needs: programs that must be installed.
        reasons: for each block that is not run, the reason.
        tests: files of tests that run blocks of the page.
    """

    cluster: list[str] | None
    needs: list[str]
    reasons: list[str]
    tests: list[str]


def read_blocks(page: Path) -> list[Block]:
    """Return the blocks that are run, in order; files to write are commands of the shell."""
    return [part for part in _parts(page) if isinstance(part, Block)]


def read_marks(page: Path) -> Marks:
    """Return what the comments of a page say."""
    comments = [part for part in _parts(page) if isinstance(part, str)]
    clusters = [text[9:] for text in comments if text.startswith("cluster: ")]
    tests = [re.split(":| ", text[7:])[0] for text in comments if text.startswith("run by ")]
    return Marks(
        cluster=shlex.split(clusters[0]) if clusters else None,
        needs=[text[6:] for text in comments if text.startswith("needs ")],
        reasons=[text[9:] for text in comments if text.startswith("not run: ")],
        tests=tests,
    )


def _parts(page: Path) -> Iterator[Block | str]:
    """Yield the comments about tests, and the blocks that are run."""
    text = page.read_text(encoding="utf-8")
    is_page_left_out = ": all commands of this page -->" in text
    is_left_out, code = False, "0"
    for match in _PART.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        comment, language, body = match["comment"], match["language"], match["text"]
        if comment is not None:
            is_left_out = comment.startswith(("not run: ", "run by "))
            code = comment[6:] if comment.startswith("exits ") else "0"
            yield Block(comment[6:], line) if comment.startswith("test: ") else comment
            continue
        if found := _FILE.match(body):
            yield Block(f"cat > {found[1]} <<'END OF FILE'\n{body}END OF FILE", line)
        elif language in SHELLS and not (is_left_out or is_page_left_out):
            yield Block(_exiting("\n".join(_typed(language, body)), code), line)
        is_left_out, code = False, "0"


def _exiting(script: str, code: str) -> str:
    """Return a script that fails unless its last command exits with this code."""
    if code == "0":
        return script
    *before, last = script.splitlines()
    # A line of its own: the last command may end with a comment.
    return "\n".join([*before, "set +e", last, "ended=$?", "set -e", f"test $ended = {code}"])


def _typed(language: str, text: str) -> Iterator[str]:
    """Yield the lines that a reader types; a console shows outputs, too."""
    is_continued = False
    for line in text.splitlines():
        if language != "console":
            yield line
        elif line.startswith("$ ") or is_continued:
            yield line.removeprefix("$ ")
            is_continued = line.endswith("\\")
