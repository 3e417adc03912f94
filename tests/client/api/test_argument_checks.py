"""Wrong arguments are refused before anything is sent, and named as the caller wrote them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from pliant.client import Client, SubmitOptions, UsageError
from pliant.client.api.argument_checks import _OPTIONS
from pliant.client.submission.build_job import build_job

Call = Callable[[Any], Any]


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda client: client.job("12"), "number"),
        (lambda client: client.wait(True), "number"),
        (lambda client: client.wait(1, timeout_s="60"), "timeout_s"),
        (lambda client: client.jobs("12"), "ids"),
        (lambda client: client.jobs([1, "2"]), r"ids\[1\]"),
        (lambda client: client.jobs(states="RUNNING"), "states"),
        (lambda client: client.cancel(), "ids"),
        (lambda client: client.cancel([1, 2]), r"ids: .* write cancel\(\*ids\)"),
        (lambda client: client.resize(1, -2), "size"),
        (lambda client: client.resize(1, "2"), "size"),
        (lambda client: client.resize(1, 2, release="n1"), "release"),
        (lambda client: client.set_priority(1, 1.5), "priority"),
        (lambda client: client.output(1, tail=-1), "tail"),
        (lambda client: client.drain(""), "node"),
        (lambda client: client.drain("n1", 5), "reason"),
        (lambda client: client.events("x"), "number"),
        (lambda client: client.events(after=-1), "after"),
        (lambda client: client.submit(), "argv"),
        (lambda client: client.submit(["true"]), r"argv: .* write submit\(\*argv\)"),
        (lambda client: client.submit("true", 5), r"argv\[1\]"),
        (lambda client: client.submit("true", sizes=1.5), "sizes"),
        (lambda client: client.submit("true", sizes=0), "size"),
        (lambda client: client.submit("true", time_limit_s="2h"), "time_limit_s"),
        (lambda client: client.submit("true", priority="high"), "priority"),
        (lambda client: client.submit("true", env={"A": 1}), "env"),
        (lambda client: client.submit("true", gres="fpga:1"), "gres"),
        (lambda client: client.submit("true", mem_per_cpu="much"), "mem_per_cpu"),
        (lambda client: client.submit("true", signal="USR1@60"), "add time_limit_s"),
    ],
)
def test_a_wrong_argument_is_named(server: Any, call: Call, argument: str) -> None:
    with Client() as client, pytest.raises(UsageError, match=argument):
        call(client)
    assert server.requests == []


def test_paths_and_defaults_are_accepted(server: Any, tmp_path: Path) -> None:
    server.answers["submit"] = {"id": 1}
    with Client() as client:
        client.submit(Path(sys.executable), stdout=tmp_path / "out", requeue=None, prefer=None)
    assert server.last["job"]["stdout"] == str(tmp_path / "out")


def test_every_option_is_typed_and_checked() -> None:
    known = set(build_job.__kwdefaults__ or {}) - {"sizes"}
    assert set(get_type_hints(SubmitOptions)) == known
    assert set(_OPTIONS) == known
