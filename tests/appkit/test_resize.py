"""Real ranks that join and leave a real application."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from standin import Application

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

Start = Callable[..., Application]


def finish(app: Application, stop: Path) -> str:
    stop.touch()
    codes = app.wait()
    assert set(codes) == {0}, (codes, app.text())
    return app.text()


def test_grow_and_shrink(start: Start, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    app = start("verify", 2, str(stop))
    outcome = app.grow(2)
    print(outcome)
    assert outcome.committed
    outcome = app.shrink([1, 3])
    print(outcome)
    assert outcome.committed
    assert "verified" in finish(app, stop)
