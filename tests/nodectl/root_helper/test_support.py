"""The harness of these tests leaves nothing behind, whatever has failed."""

from __future__ import annotations

import os
import signal

import pytest

from helperkit import Helper, needs_root
from helperkit.processes import find_all_naming
from pliant.nodectl.root_helper.started_worlds import Started

pytestmark = [needs_root, pytest.mark.timeout(180)]

SLEEPER = ["/bin/sh", "-c", "sleep 1000 & setsid sleep 1000"]


@pytest.mark.parametrize("killed", ["nothing", "helper", "subreaper and helper"])
def test_close_ends_everything(killed: str) -> None:
    helper = Helper()
    try:
        helper.start()
        helper.start_world(helper.request(argv=SLEEPER))
        if "subreaper" in killed:
            line = (helper.run / "started" / "7.1.0").read_text()
            os.kill(Started.from_line("7.1.0", line).subreaper.pid, signal.SIGKILL)
        if "helper" in killed:
            helper.kill()
    finally:
        helper.close()
    assert find_all_naming(helper.base) == []
    assert not helper.base.exists()
