"""Helpers that tests share: ``from testkit import run_python, wait_until``."""

from testkit.leaks import Leaks, session_processes
from testkit.processes import MPIEXEC, fresh_modules, loaded_modules, mpiexec, run_python
from testkit.repository import PARTS, ROOT, part_files, source_files
from testkit.waiting import wait_until

__all__ = [
    "MPIEXEC",
    "PARTS",
    "ROOT",
    "Leaks",
    "fresh_modules",
    "loaded_modules",
    "mpiexec",
    "part_files",
    "run_python",
    "session_processes",
    "source_files",
    "wait_until",
]
