"""The parts of the page that need no document, tested in node."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from testkit import ROOT


@pytest.mark.parametrize("file", ["model.test.mjs", "live.test.mjs"])
def test_the_modules_of_the_page(file: str) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    page = ROOT / "client/dashboard/static/js"
    done = subprocess.run(
        [node, "--test", str(Path(__file__).with_name(file))],
        capture_output=True,
        text=True,
        env={**os.environ, "PLIANT_PAGE": str(page)},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
