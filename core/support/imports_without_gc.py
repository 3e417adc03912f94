"""Faster imports for daemons that import hundreds of modules when they start."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def imports_without_gc() -> Iterator[None]:
    """Switch garbage collection off for imports, and exclude the imported objects from it.

    Imports create some 100,000 objects that live until the process ends. Each collection visits
    them, finds nothing, and so takes about a seventh of the time that the server needs to start.
    Later collections do not visit them either.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
