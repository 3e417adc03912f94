"""Moves the clock of processes of tests; Python imports this by itself from the first PYTHONPATH.

The file that PLIANT_TEST_CLOCK names is read at every look: lines of ``NODE SECONDS`` say how far
the clock of what runs on a node is off, ``* SECONDS`` that of all others. The clock of the machine,
and the monotonic one, are as they were.
"""

from __future__ import annotations

import os
import time

_NODE = "PLIANT_TEST_CLOCK_NODE"
_FILE = os.environ.get("PLIANT_TEST_CLOCK", "")
_true = time.time


def _node() -> str:
    """A controller is told its node; what it starts has it from there."""
    with open("/proc/self/cmdline", encoding="utf-8", errors="replace") as file:
        words = file.read().split("\0")
    if "nodectl" in words and "--name" in words:
        os.environ[_NODE] = words[words.index("--name") + 1]
    return os.environ.get(_NODE) or os.environ.get("PLIANT_NODE", "*")


def _off() -> float:
    with open(_FILE, encoding="utf-8") as file:
        known = dict(line.split() for line in file)
    return float(known.get(_where, known.get("*", "0")))


if _FILE:
    _where = _node()
    time.time = lambda: _true() + _off()
    time.time_ns = lambda: int((_true() + _off()) * 1e9)
