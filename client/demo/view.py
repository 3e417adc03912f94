"""Output of the demo while it runs: a live table on a terminal, else a line every 2 seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pliant.charts.history_timeline import node_rows

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red")
#: Seconds between two lines where stdout is no terminal.
_LINE_EVERY_S = 2.0


@dataclass
class Snapshot:
    """The jobs, nodes and events of the demo's cluster at one moment."""

    jobs: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    def job(self, number: int) -> dict[str, Any]:
        """Return a job by its id; empty if the snapshot does not have it yet."""
        return next((job for job in self.jobs if job["id"] == number), {})


def holders(events: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Return which job holds each processor after these events: the job's id by processor."""
    held: dict[int, list[int]] = {}
    for event in events:
        if event["kind"] in {"job.started", "job.resized"}:
            held[event["job"]] = list((event.get("data") or {}).get("processors") or ())
        elif event["kind"] == "job.ended":
            held.pop(event["job"], None)
    return {index: job for job, indices in held.items() for index in indices}


def progress(job: Mapping[str, Any]) -> float:
    """Return the share of a job's iterations that is done, from 0 to 1."""
    if job.get("state") == "COMPLETED":
        return 1.0
    known = job.get("progress") or {}
    total = known.get("iterations") or 0
    return min(1.0, (known.get("iteration") or 0) / total) if total else 0.0


def line(snapshot: Snapshot, elapsed_s: float) -> str:
    """Return the states of all jobs on one line."""
    parts = [
        f"{job['name']} {job['state'].lower()}"
        + (f" on {job['processors']}" if job.get("processors") else "")
        + (f" {progress(job):.0%}" if progress(job) else "")
        for job in snapshot.jobs
    ]
    return f"{elapsed_s:5.1f} s  " + ("; ".join(parts) or "starting")


class DemoDisplay:
    """Shows snapshots, and the steps of the demo."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._live: Live | None = None
        self._stack = ExitStack()
        self._printed_at = -_LINE_EVERY_S
        self._steps: list[str] = []
        self.snapshot = Snapshot()

    def __enter__(self) -> DemoDisplay:
        if sys.stdout.isatty():
            from rich.live import Live

            self._live = self._stack.enter_context(Live(auto_refresh=False, transient=True))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._live = None

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the demo began."""
        return time.monotonic() - self._begin

    def say(self, text: str) -> None:
        """Print a text about the step of the demo that begins, with the elapsed seconds."""
        self._steps.append(f"{self.elapsed_s:5.1f} s  {text}")
        if self._live is None:
            print(self._steps[-1], flush=True)
        else:
            self._live.console.print(self._steps[-1], highlight=False, markup=False)

    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot: redraw the live view, or print a line every few seconds."""
        self.snapshot = snapshot
        if self._live is not None:
            self._live.update(self._draw(), refresh=True)
        elif self.elapsed_s - self._printed_at >= _LINE_EVERY_S:
            self._printed_at = self.elapsed_s
            print(line(snapshot, self.elapsed_s), flush=True)

    def _draw(self) -> Table:
        from rich.table import Table

        outer = Table.grid(padding=(0, 4))
        outer.add_row(self._jobs(), self._nodes())
        return outer

    def _jobs(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        table = Table("job", "state", "processors", "progress", title=f"{self.elapsed_s:.1f} s")
        for job in self.snapshot.jobs:
            colour = self._colour(job["id"])
            table.add_row(
                f"[{colour}]■[/] {job['name']} ({job['sizes']})",
                str(job["state"]),
                str(job.get("processors") or ""),
                ProgressBar(total=1.0, completed=progress(job), width=24),
            )
        return table

    def _nodes(self) -> Table:
        from rich.table import Table

        held = holders(self.snapshot.events)
        table = Table("node", "processors", title="nodes")
        for row in node_rows(self.snapshot.nodes):
            owners = [held.get(index) for index in range(row.first, row.first + row.slots)]
            marks = [f"[{self._colour(job)}]■[/]" if job else "[dim]·[/]" for job in owners]
            table.add_row(row.name, " ".join(marks))
        return table

    def _colour(self, job: int) -> str:
        return _COLOURS[(job - 1) % len(_COLOURS)]
