"""Show what happens on each host: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from pliant.client.terminal.output import print_text
from pliant.client.terminal.tables import clean

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressView(Protocol):
    """Receives what happens, from any thread."""

    def begin(self, host: str, steps: int) -> None:
        """Note that a host begins to carry out its plan."""

    def step(self, host: str, text: str) -> None:
        """Note that a step begins."""

    def end(self, host: str, text: str) -> None:
        """Note how the plan ended."""


class LineView:
    """Prints a line for each step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def begin(self, host: str, steps: int) -> None:
        """Print nothing: the steps follow."""

    def step(self, host: str, text: str) -> None:
        """Print a step."""
        with self._lock:
            print_text(clean(f"{host}: {text}"))
            sys.stdout.flush()

    def end(self, host: str, text: str) -> None:
        """Print how the host ended."""
        self.step(host, text)


class QuietView:
    """Shows nothing, for output as JSON."""

    def begin(self, host: str, steps: int) -> None:
        """Show nothing."""

    def step(self, host: str, text: str) -> None:
        """Show nothing."""

    def end(self, host: str, text: str) -> None:
        """Show nothing."""


class _BarView:
    """Shows a bar for each host."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def _task(self, host: str) -> TaskID:
        if host not in self._tasks:
            self._tasks[host] = self._progress.add_task(host, total=None, text="")
        return self._tasks[host]

    def begin(self, host: str, steps: int) -> None:
        """Set the length of the bar."""
        self._progress.update(self._task(host), total=steps, completed=0)

    def step(self, host: str, text: str) -> None:
        """Advance the bar to the step that begins."""
        task = self._task(host)
        started = self._progress.tasks[self._progress.task_ids.index(task)].fields["text"] != ""
        self._progress.update(task, text=clean(text), advance=1 if started else 0)

    def end(self, host: str, text: str) -> None:
        """Fill the bar."""
        task = self._task(host)
        self._progress.update(task, total=1, completed=1, text=clean(text))


@contextmanager
def progress_view(hosts: Sequence[str], *, quiet: bool = False) -> Iterator[ProgressView]:
    """Yield a view for the hosts that suits the standard output."""
    if quiet:
        yield QuietView()
        return
    if not sys.stdout.isatty():
        yield LineView()
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}", markup=False),
    )
    with Progress(*columns) as progress:
        view = _BarView(progress)
        for host in hosts:
            view.step(host, "")
        yield view
