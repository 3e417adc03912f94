"""Keep Ctrl-C from printing a traceback; every command imports this module first.

The interpreter then ends with the signal, which shells show as exit code 130.
"""

from __future__ import annotations

import sys
from types import TracebackType

_before = sys.excepthook


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None, /) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        _before(kind, error, trace)


sys.excepthook = _hook
