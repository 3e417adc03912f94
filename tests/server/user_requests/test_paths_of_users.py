"""The server stores the paths of a job as text; it opens none of them with its own rights."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.core.events import NodeRegistered
from pliant.core.values.ids import NodeName
from pliant.core.values.timeouts import Timeouts
from pliant.server.authorisation.access_control import RequestingUser
from pliant.server.user_requests.answer_encoding import encode_pieces
from serverkit.scripted import Shell

MARK = "path-of-a-user"
OWNER = RequestingUser(999, "server")
_touched: list[str] = []
_listening: list[bool] = []
_hooked: list[bool] = []


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    """Note each event of the interpreter that names a path, such as ``open`` and ``os.listdir``."""
    if _listening and event.startswith(("open", "os.", "pathlib.", "glob.", "shutil.")):
        texts = (str(each) for each in arguments if isinstance(each, str | bytes | Path))
        _touched.extend(f"{event} {text}" for text in texts if MARK in text)


@pytest.fixture
def audited() -> Iterator[list[str]]:
    if not _hooked:  # it cannot be removed
        sys.addaudithook(_audit)
        _hooked.append(True)
    _touched.clear()
    _listening.append(True)
    yield _touched
    _listening.clear()


def test_the_hook_notices_an_open(audited: list[str], tmp_path: Path) -> None:
    (tmp_path / MARK).touch()
    assert audited


def test_a_submission_opens_no_path_of_the_user(audited: list[str], tmp_path: Path) -> None:
    shell = Shell(tmp_path, "fcfs", Timeouts())
    shell.register([NodeRegistered(NodeName("n1"), 4)])
    job = {
        "argv": [f"~/{MARK}/program"],
        "cwd": f"/home/ann/{MARK}",
        "stdin": f"../{MARK}/in",
        "stdout": f"~/{MARK}-%j",
        "stderr": f"/etc/{MARK}",
        "env": {"HOME": f"/home/{MARK}"},
    }
    shell.submit(**job)
    shell.turn()

    async def look() -> str:
        answer = await shell.actions().handle({"op": "jobs", "ids": [1]}, OWNER)
        return b"".join(encode_pieces(answer)).decode()

    (found,) = json.loads(asyncio.run(look()))["jobs"]
    # Relative to the folder of the job, and `~` is not the home of the server's account.
    assert found["stdout"] == f"/home/ann/{MARK}/~/{MARK}-1"
    shell.close()
    assert audited == []
