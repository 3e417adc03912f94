"""Show the work on each host: a row per host on a terminal, a line per step elsewhere."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from pliant.client.terminal.output import print_text
from pliant.client.terminal.tables import clean

#: Values of TERM for terminals on which the cursor cannot be moved.
_TERMINALS_WITHOUT_CURSOR = ("dumb", "unknown")


class ProgressView(Protocol):
    """The interface of progress displays; the deployment calls the methods from any thread."""

    def begin(self, host: str, steps: int) -> None:
        """Record that a host begins to carry out its plan, which has ``steps`` steps."""

    def step(self, host: str, text: str) -> None:
        """Record that a host begins the step that ``text`` describes."""

    def wait(self, host: str) -> None:
        """Record that the host has finished its step and is now waiting for other hosts."""

    def fail(self, host: str, text: str) -> None:
        """Record that a host has failed; ``text`` names the step or check."""

    def end(self, host: str, text: str) -> None:
        """Record that a host has finished with its plan; ``text`` is the result."""


class QuietView:
    """Shows nothing, for output as JSON."""

    def begin(self, host: str, steps: int) -> None:
        """Show nothing when the host begins its plan."""

    def step(self, host: str, text: str) -> None:
        """Show nothing when the host begins a step."""

    def wait(self, host: str) -> None:
        """Show nothing when the host waits for others."""

    def fail(self, host: str, text: str) -> None:
        """Show nothing when the host fails."""

    def end(self, host: str, text: str) -> None:
        """Show nothing when the host has finished with its plan."""


class LineView(QuietView):
    """Prints a line for each step and for each result; failures are printed with their causes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def step(self, host: str, text: str) -> None:
        """Print the name of the host and the step that ``text`` describes."""
        with self._lock:
            print_text(clean(f"{host}: {text}"))
            sys.stdout.flush()

    def end(self, host: str, text: str) -> None:
        """Print the result of the host's plan."""
        self.step(host, text)


@contextmanager
def progress_view(hosts: Sequence[str], *, quiet: bool = False) -> Iterator[ProgressView]:
    """Within this context, show the progress of hosts.

    A terminal gets a table that is redrawn, other outputs get lines, and ``quiet`` shows nothing.
    """
    if quiet:
        yield QuietView()
        return
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") in _TERMINALS_WITHOUT_CURSOR:
        yield LineView()
        return
    from pliant.deploy.rollout.terminal_view import terminal_view

    with terminal_view(hosts) as view:
        yield view
