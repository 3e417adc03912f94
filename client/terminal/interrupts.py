"""Ctrl-C and SIGTERM as one exception, which protected sections delay."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """The user or a supervisor asked this command to end."""


class Interrupts:
    """Within this context, the first signal raises ``Interrupted``; ``shielded()`` delays it."""

    def __init__(self) -> None:
        self.number = 0
        self._depth = 0
        self._raised = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Within this context, delay signals until its end."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        self._raise_pending()

    def ignore(self) -> None:
        """Ignore all further signals, because the cluster is being taken down."""
        self._depth += 1

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self.number = self.number or number
        self._raise_pending()

    def _raise_pending(self) -> None:
        if self.number and not self._depth and not self._raised:
            self._raised = True
            raise Interrupted
