"""Arguments of `PliantExecutor`, which are checked before anything is submitted."""

from __future__ import annotations

import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from pliant.client import (
    ExecutorBrokenError,
    NoServerError,
    PliantExecutor,
    RequestError,
    UsageError,
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers: expected a whole number of at least 1"),
        ({"processors_per_worker": 0.5}, "processors_per_worker: expected a whole number"),
        ({"retries": -1}, "retries: expected a whole number of at least 0"),
        ({"array": "1-3"}, "array: the executor chooses this option itself"),
        ({"sizes": 4}, "sizes: the executor chooses this option itself"),
        ({"time_limit_s": "2h"}, "time_limit_s: expected a number of seconds"),
        ({"env": ["A=1"]}, "env: expected texts by name"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PliantExecutor(**options)


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="there is no option 'worker'"):
        PliantExecutor(worker=2)  # type: ignore[call-arg]


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(UsageError, match=r"pip install pliant\[executor\]"):
        PliantExecutor()


@pytest.mark.usefixtures("state_dir")
def test_without_a_server_nothing_is_left() -> None:
    with pytest.raises(NoServerError):
        PliantExecutor()


def test_a_refused_job_leaves_no_socket(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    server.answers["nodes"] = {"nodes": [{"name": "n1", "address": "127.0.0.1"}]}
    server.answers["submit"] = {"ok": False, "error": {"kind": "refused", "message": "too many"}}
    with pytest.raises(RequestError, match="too many"):
        PliantExecutor(chdir=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["worker_jobs.WorkerJobs._poll", "pool.Pool._welcome"])
def test_no_future_waits_for_ever_if_a_thread_of_the_executor_fails(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    submitted = threading.Event()

    def fail(*arguments: object) -> None:
        submitted.wait(60)
        for each in arguments:
            if isinstance(each, socket.socket):
                each.close()
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(f"pliant.client.executor.{place}", fail)
    server.answers["nodes"] = {"nodes": [{"name": "n1", "address": "127.0.0.1"}]}
    server.answers["submit"] = {"id": 1}
    server.answers["jobs"] = {"jobs": [{"id": 1, "state": "RUNNING"}]}
    server.answers["cancel"] = {"results": []}
    server.answers["wait"] = {"job": {"id": 1, "state": "COMPLETED"}}
    executor = PliantExecutor(chdir=tmp_path)
    future = executor.submit(abs, -1)
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(executor._pool.listener.contact.path)
        submitted.set()
        error = future.exception(60)
    assert isinstance(error, ExecutorBrokenError)
    assert "ZeroDivisionError: a bug" in str(error)
    executor.shutdown()
    with pytest.raises(ExecutorBrokenError, match="a bug"):
        executor.submit(abs, -1)
