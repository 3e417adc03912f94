from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from standin import Application, Server

APPS = Path(__file__).parent / "apps"

Start = Callable[..., Application]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start an application of the folder ``apps`` under the stand-in."""
    started: list[Application] = []

    def run(name: str, size: int, *args: str, server: Server | None = None) -> Application:
        app = Application(tmp_path, [str(APPS / f"{name}.py"), *args], size, server)
        started.append(app)
        return app

    yield run
    for app in started:
        app.close()
        print(app.text())
