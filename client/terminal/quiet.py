"""Imported by every command before anything else: Ctrl-C says nothing, however early it comes.

The interpreter then ends itself with the signal, which shells show as exit code 130.
"""

from __future__ import annotations

import sys
from types import TracebackType

_before = sys.excepthook


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None, /) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        _before(kind, error, trace)


sys.excepthook = _hook
