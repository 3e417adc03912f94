"""Run an example whose pauses end when a file appears: ``paced.py NAME FILE ARGUMENTS...``.

It accepts every offer, though a small problem gains nothing by more processors.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from pliant.appkit import Job
from pliant.examples import common

NAME, FILE, *ARGUMENTS = sys.argv[1:]


def pause(seconds: float) -> None:
    if not os.path.exists(FILE):
        time.sleep(seconds)


def agree(job: Job) -> None:
    tell_resizes(job)
    job.on_offer(lambda _: True)


tell_resizes = common.tell_resizes
vars(common)["tell_resizes"] = agree
vars(common)["time"] = SimpleNamespace(sleep=pause)
example = importlib.import_module(f"pliant.examples.{NAME}")
if hasattr(example, "arguments"):
    example.main(example.arguments(ARGUMENTS))
else:
    example.main(Path(ARGUMENTS[0]))
