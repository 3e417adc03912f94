"""Run an example whose pauses end when a file appears: ``paced.py NAME FILE SETTINGS``."""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

NAME, FILE, SETTINGS = sys.argv[1:]


def pause(seconds: float) -> None:
    if not os.path.exists(FILE):
        time.sleep(seconds)


example = importlib.import_module(f"pliant.examples.{NAME}")
vars(example)["time"] = SimpleNamespace(sleep=pause)
example.main(Path(SETTINGS))
