"""Rows on a terminal that show the present step and the times of each host."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pliant.client.terminal.tables import clean

_BAR_WIDTH = 16
_REFRESHES_PER_S = 4
#: Lines of the terminal that rows leave free: the line of counts, and the one of the cursor.
_OTHER_LINES = 2
_MAX_NAME_WIDTH = 32


class _State(IntEnum):
    """The state of a host, numbered by how important it is to show the host.

    If the terminal has too few lines for all hosts, those with the smallest numbers are shown.
    """

    WORKING = 0
    FAILED = 1
    WAITING = 2
    DONE = 3


@dataclass(slots=True)
class _Row:
    """The progress of one host; times are those of the monotonic clock."""

    host: str
    state: _State = _State.WAITING
    #: The number of steps; None before the plan is made.
    steps: int | None = None
    done: int = 0
    text: str = ""
    started: float | None = None
    step_started: float = 0.0
    ended: float | None = None


class TerminalView:
    """Collects the progress of hosts, and draws it when the terminal is refreshed."""

    def __init__(
        self, hosts: Sequence[str], console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rows = {host: _Row(host) for host in hosts}
        self._console, self._clock = console, clock
        self._lock = threading.Lock()
        #: Set before the rows are drawn for the last time, so that all of them stay visible.
        self.is_closed = False

    def begin(self, host: str, steps: int) -> None:
        """Set the number of steps of the host."""
        with self._lock:
            self._row(host).steps = steps

    def step(self, host: str, text: str) -> None:
        """Show a step as the present one."""
        with self._lock:
            row, now = self._row(host), self._clock()
            row.state, row.text, row.step_started = _State.WORKING, text, now
            row.started = now if row.started is None else row.started

    def wait(self, host: str) -> None:
        """Count the present step of the host as done, and mark the host as waiting for others."""
        with self._lock:
            row = self._row(host)
            row.state = _State.WAITING
            row.done += row.steps is not None
            row.ended = self._clock()

    def fail(self, host: str, text: str) -> None:
        """Mark the host as failed, with the step or check that failed."""
        with self._lock:
            row = self._row(host)
            row.state, row.text, row.ended = _State.FAILED, text, self._clock()

    def end(self, host: str, text: str) -> None:
        """Show the result of the host; a failed host keeps the name of the step that failed."""
        with self._lock:
            row = self._row(host)
            if row.state is not _State.FAILED:
                row.state, row.text = _State.DONE, text

    def render(self) -> RenderableType:
        """Return what is shown: a row for each host, and how many hosts are in each state."""
        with self._lock:
            rows = list(self._rows.values())
            if not self.is_closed:
                limit = max(1, self._console.size.height - _OTHER_LINES)
                if len(rows) > limit:
                    rows = sorted(rows, key=lambda row: row.state)[:limit]
            table = Table.grid(padding=(0, 1))
            table.add_column(no_wrap=True, max_width=_MAX_NAME_WIDTH)
            table.add_column(width=_BAR_WIDTH)
            table.add_column(no_wrap=True, justify="right")
            table.add_column(no_wrap=True, justify="right")
            table.add_column(no_wrap=True, overflow="ellipsis")
            for row in rows:
                table.add_row(*self._cells(row))
            if not self.is_closed:
                table.caption, table.caption_justify = Text(self._counts()), "left"
            return table

    def _row(self, host: str) -> _Row:
        """Return the row of a host, made if it is missing.

        The server's host gets steps even if it is none of the selected hosts.
        """
        return self._rows.setdefault(host, _Row(host))

    def _cells(self, row: _Row) -> tuple[RenderableType, ...]:
        now = self._clock()
        is_done = row.state is _State.DONE
        done = row.steps or 0 if is_done else row.done
        bar = ProgressBar(1, 1) if is_done else ProgressBar(row.steps or 1, done)
        bar.width = _BAR_WIDTH
        count = f"{done}/{row.steps}" if row.steps else ""
        elapsed = ""
        if row.started is not None:
            is_running = row.state is _State.WORKING or row.ended is None
            elapsed = _duration((now if is_running else row.ended or now) - row.started)
        return Text(clean(row.host)), bar, Text(count), Text(elapsed), self._description(row, now)

    def _description(self, row: _Row, now: float) -> Text:
        text = clean(row.text)
        match row.state:
            case _State.WORKING:
                return Text(f"{text} ({_duration(now - row.step_started)})")
            case _State.FAILED:
                return Text(f"FAILED: {text}", "red")
            case _State.WAITING:
                return Text("" if self.is_closed else "waits", "dim")
        return Text(text)

    def _counts(self) -> str:
        states = [row.state for row in self._rows.values()]
        failed = states.count(_State.FAILED)
        text = f"{states.count(_State.DONE)} of {len(states)} hosts done"
        return f"{text}, {failed} failed" if failed else text


def _duration(seconds: float) -> str:
    """Return a duration such as ``9 s`` or ``3:05``."""
    whole = int(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02}"


@contextmanager
def terminal_view(hosts: Sequence[str], console: Console | None = None) -> Iterator[TerminalView]:
    """Yield a view that is drawn until the end of the context, and stays visible after it."""
    console = console or Console()
    view = TerminalView(hosts, console)
    with Live(console=console, get_renderable=view.render, refresh_per_second=_REFRESHES_PER_S):
        try:
            yield view
        finally:
            view.is_closed = True
