"""Helpers that tests share: ``from testkit import run_python, wait_until``."""

from testkit.leaks import Leaks, session_processes
from testkit.processes import fresh_modules, run_python
from testkit.repository import PARTS, ROOT, part_files, source_files
from testkit.waiting import wait_until

__all__ = [
    "PARTS",
    "ROOT",
    "Leaks",
    "fresh_modules",
    "part_files",
    "run_python",
    "session_processes",
    "source_files",
    "wait_until",
]
