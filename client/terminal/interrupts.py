"""Ctrl-C and TERM as one exception that never comes at a moment that must not be torn."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """The user (or a supervisor) wants this to end."""


class Interrupts:
    """While entered, signals raise ``Interrupted``, once; in ``shielded()`` they wait."""

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
        """Let nothing tear what is in here; a signal takes effect at its end."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        self._raise_pending()

    def ignore(self) -> None:
        """From here on nothing is raised any more: what follows takes things down."""
        self._depth += 1

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self.number = self.number or number
        self._raise_pending()

    def _raise_pending(self) -> None:
        if self.number and not self._depth and not self._raised:
            self._raised = True
            raise Interrupted
