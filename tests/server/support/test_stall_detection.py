from __future__ import annotations

import threading
import time

import pytest

from pliant.server.support.stall_detection import wait_measuring_stall


@pytest.mark.parametrize(("slept", "late"), [(0.0, False), (0.9, False), (1.5, True)])
def test_a_wait_that_took_much_too_long_is_measured_as_a_stall(slept: float, late: bool) -> None:
    class Slow(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            time.sleep((timeout or 0.0) + slept)
            return False

    assert (wait_measuring_stall(Slow(), 0.01) > 0) == late
    assert wait_measuring_stall(Slow(), None) == 0
