"""Cancelling jobs by number, and by what selects them."""

from __future__ import annotations

from typing import Any

import pytest

from pliant.client.commands.jobdel import main

Capture = pytest.CaptureFixture[str]


def test_jobs_are_selected_by_the_server(server: Any, capsys: Capture) -> None:
    server.answers["cancel"] = {"results": [{"id": 1, "ok": True}, {"id": 2, "ok": True}]}
    assert main(["--name", "sim*", "--state", "pending", "--user", "ada"]) == 0
    assert server.last == {
        "op": "cancel",
        "users": ["ada"],
        "states": ["PENDING"],
        "names": ["sim*"],
    }
    assert capsys.readouterr().out == "2 jobs cancelled\n"


def test_a_selection_that_selects_nothing_is_no_error(server: Any, capsys: Capture) -> None:
    server.answers["cancel"] = {"results": []}
    assert main(["--name", "x"]) == 0
    assert capsys.readouterr().out == "0 jobs cancelled\n"


def test_refusals_are_reported(server: Any, capsys: Capture) -> None:
    server.answers["cancel"] = {"results": [{"id": 1, "ok": False, "error": "not yours"}]}
    assert main(["1"]) == 1
    assert "job 1: not yours" in capsys.readouterr().err


def test_an_error_that_names_the_job_does_not_repeat_it(server: Any, capsys: Capture) -> None:
    errors = {1: "there is no job 12", 12: "there is no job 12"}
    server.answers["cancel"] = {
        "results": [{"id": number, "ok": False, "error": text} for number, text in errors.items()]
    }
    assert main(["1", "12"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "jobdel: job 1: there is no job 12",
        "jobdel: there is no job 12",
    ]


@pytest.mark.parametrize("words", [[], ["1", "--name", "x"], ["--state", "failed"]], ids=str)
def test_wrong_usage_sends_nothing(server: Any, words: list[str]) -> None:
    assert main(words) == 2
    assert server.requests == []
