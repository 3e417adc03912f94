"""What ``pliant dashboard --open`` hands to the browser."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

import psutil
import pytest

from browserkit.served import Served
from pliant.client.dashboard.dashboard_command import opened
from testkit import wait_until

#: Stands for a browser that is waited for. It writes its arguments and environment to a file.
BROWSER = """#!/bin/sh
echo "$*" > "{file}.new"
env >> "{file}.new"
mv "{file}.new" "{file}"
exec sleep 30
"""


def test_a_browser_gets_neither_the_key_nor_the_folders_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(BROWSER.format(file=seen))
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    monkeypatch.setenv("PLIANT_RUN_DIR", "/run/of-the-cluster")
    with opened("http://127.0.0.1:1/#login=secret"):  # does not wait for the browser
        wait_until(seen.exists, what="the start of the browser")
        text = seen.read_text()
        page = Path(unquote(urlsplit(text.splitlines()[0]).path))
        assert "http://127.0.0.1:1/#login=secret" in page.read_text()
        assert os.stat(page.parent).st_mode & 0o077 == 0
    assert not page.exists()
    assert "secret" not in text
    assert "of-the-cluster" not in text
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("BROWSER") == str(browser):
                process.kill()
                process.wait(30)


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
