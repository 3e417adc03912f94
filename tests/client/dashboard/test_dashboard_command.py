"""What ``pliant dashboard --open`` hands to the browser."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from pliant.client.dashboard.dashboard_command import opened


def test_the_key_is_not_in_the_arguments_of_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr(webbrowser, "open", given.append)
    with opened("http://127.0.0.1:1/#login=secret"):
        assert "secret" not in given[0]
        page = Path(unquote(urlsplit(given[0]).path))
        assert "http://127.0.0.1:1/#login=secret" in page.read_text()
        assert os.stat(page.parent).st_mode & 0o077 == 0
    assert not page.exists()
