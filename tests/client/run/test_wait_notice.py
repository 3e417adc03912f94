"""What ``pliant run`` says while its job waits for processors."""

from __future__ import annotations

from typing import Any

import pytest

from pliant.client.run import wait_notice
from pliant.client.run.wait_notice import WaitNotice
from testkit import wait_until

from ..conftest import job

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_notice, "INTERVAL_S", 0.01)


def test_a_job_that_waits_is_named_with_what_it_waits_for(server: Any, capsys: Capture) -> None:
    waits = job(7, state="PENDING", start=None, reason="waits for jobs before it")
    server.answers["jobs"] = {"jobs": [waits]}
    notice, err = WaitNotice(7, "2-4", line_end="\r\n"), ""
    wait_until(lambda: len(server.requests) > 2)
    err += capsys.readouterr().err
    server.answers["jobs"] = {"jobs": [job(7)]}
    wait_until(lambda: not notice.is_running)
    err += capsys.readouterr().err
    assert err == (
        "pliant run: job 7 waits for 2-4 processors: waits for jobs before it\r\n"
        "pliant run: job 7 has started\r\n"
    )
    notice.stop()


def test_a_job_that_starts_at_once_is_not_named(server: Any, capsys: Capture) -> None:
    server.answers["jobs"] = {"jobs": [job(7)]}
    notice = WaitNotice(7, "1")
    wait_until(lambda: not notice.is_running)
    notice.stop()
    assert capsys.readouterr().err == ""
