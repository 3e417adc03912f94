"""Logs as JSON: one object per line, with job, resize and node as fields."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from pliant.protos.daemons.log_handlers import (
    JournalHandler,
    JsonFormatter,
    LogHandler,
    use_json,
)
from pliant.protos.daemons.systemd_journal import Journal


def logged(text: str, *args: object, **attributes: Any) -> dict[str, Any]:
    record = logging.LogRecord("pliant.x", logging.INFO, "a.py", 1, text, args, None)
    record.__dict__.update(attributes)
    line = JsonFormatter({"daemon": "pliant-server"}).format(record)
    assert line.isascii()
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_values_that_the_text_names_are_fields() -> None:
    found = logged("100 %% of job %d: %s dropped on node %s", 7, "job 9", "n1")
    assert found["message"] == "100 % of job 7: job 9 dropped on node n1"
    assert (found["job"], found["node"], found["daemon"]) == (7, "n1", "pliant-server")
    assert (found["level"], found["logger"]) == ("INFO", "pliant.x")


def test_a_world_names_its_job_and_resize() -> None:
    found = logged("world %s is ready", "0a1b.j7.r1.w12")
    assert (found["job"], found["resize"], found["world"]) == (7, 12, "0a1b.j7.r1.w12")
    assert "resize" not in logged("world %s is ready", "0a1b.j7.r1.w0")
    assert "job" not in logged("world %s is ready", "odd")


def test_values_of_users_cannot_add_lines_or_replace_fields() -> None:
    found = logged('user %s"}\n{', "a\n\x1b[31m\udcff", fields={"message": "forged", "resize": 3})
    assert found["message"].endswith('"}\n{')
    assert (found["user"], found["resize"]) == ("a\n\x1b[31m\udcff", 3)


def test_an_exception_has_its_trace() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        found = logged("failed", exc_info=sys.exc_info())
    assert "ValueError: no" in found["exception"]


def test_the_time_is_utc() -> None:
    assert logged("x", created=0.25)["time"] == "1970-01-01T00:00:00.250Z"


def test_the_journal_keeps_its_form() -> None:
    handler = JournalHandler(Journal({}))
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    assert not use_json(handler)
    record = logging.LogRecord("x", logging.INFO, "a.py", 1, "job %d", (7,), None)
    assert handler.format(record) == "job 7"
    handler.close()


def test_standard_error_gets_json(capsys: pytest.CaptureFixture[str]) -> None:
    handler = LogHandler()
    assert use_json(handler, daemon="pliant-nodectl", node="n1")
    handler.handle(logging.LogRecord("x", logging.INFO, "a.py", 1, "job %d", (7,), None))
    found = json.loads(capsys.readouterr().err)
    assert (found["job"], found["node"], found["daemon"]) == (7, "n1", "pliant-nodectl")
