"""What ``pliant dashboard --open`` hands to the browser."""

from __future__ import annotations

import os
import signal
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

import pytest

from browserkit.served import Served
from pliant.client.dashboard.dashboard_command import opened
from testkit import wait_until


def test_the_key_is_not_in_the_arguments_of_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr(webbrowser, "open", given.append)
    with opened("http://127.0.0.1:1/#login=secret"):
        assert "secret" not in given[0]
        page = Path(unquote(urlsplit(given[0]).path))
        assert "http://127.0.0.1:1/#login=secret" in page.read_text()
        assert os.stat(page.parent).st_mode & 0o077 == 0
    assert not page.exists()


@pytest.mark.cluster
def test_the_file_with_the_key_is_removed_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("uvicorn")
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("BROWSER", "/bin/true")
    with Served(tmp_path, tmp_path / "log", "--open") as served:
        wait_until(lambda: list(folder.glob("*/open.html")), what="the file for the browser")
        with urlopen(served.address().partition("#")[0]) as answer:  # its signals are handled now
            assert answer.status == 200
        served.process.send_signal(signal.SIGTERM)
        served.process.wait(30)
        assert list(folder.iterdir()) == []
