"""The state that the page shows, and what has changed in it. No input or output.

The messages of the subscription to the Pliant server are applied here once. Snapshots and changes
for any number of browsers are made from the result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from pliant.charts.allocations_from_history import JobTrack, JobTracks
from pliant.charts.usable_processors import UsableProcessors

#: How far back the page looks, seconds.
WINDOW_S = 24 * 3600.0
#: Notable events that a snapshot has.
EVENTS_KEPT = 300
#: Statistics are about this time, seconds.
RECENT_S = 3600.0
#: Values of a job row that the page shows. The others stay in this process.
_SHOWN = (
    *("id", "name", "user", "class", "type", "state", "reason", "sizes", "prefer", "processors"),
    *("held", "procs", "submit", "start", "end", "estimate_s", "time_limit_s", "expected_end"),
    *("exit_code", "signal", "run", "epoch", "reserved", "donors", "priority", "nodes", "account"),
    *("command", "cwd", "stdout", "progress", "memory_bytes"),
)
_NODE_SHOWN = (
    *("name", "cluster", "state", "reason", "first", "slots", "memory_bytes", "connected", "spare"),
)
#: Kinds of events that do not appear in the list of talks and events.
_QUIET = frozenset({"processors.released", "application.registered", "job.running", "resize.go"})


class LiveState:
    """Jobs, nodes and recent events of the cluster."""

    def __init__(self) -> None:
        self.tracks = JobTracks()
        self.rows: dict[int, dict[str, Any]] = {}
        self.nodes: dict[str, dict[str, Any]] = {}
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS_KEPT)
        self.starts: dict[str, Any] = {}
        self.seq, self.generation, self.now = 0, 0, 0.0
        self.strategy, self.user, self.role = "", "", ""
        #: Whether the server answers, and why not.
        self.connected, self.lost_why = False, "not connected yet"
        self._usable = UsableProcessors()
        self._pauses: deque[tuple[float, float]] = deque()
        self._answers: deque[tuple[float, str]] = deque()
        self._dirty_jobs: set[int] = set()
        self._dirty_nodes: set[str] = set()
        self._new_events: list[dict[str, Any]] = []
        self._gone: list[int] = []

    # ---------------------------------------------------------------- apply

    def apply(self, message: Mapping[str, Any]) -> bool:
        """Apply a message of the subscription; return whether browsers need a new snapshot."""
        is_first = "generation" in message
        self.connected, self.lost_why = True, ""
        self.seq, self.now = int(message["seq"]), float(message["now"])
        self.strategy = str(message.get("strategy", self.strategy))
        if is_first:
            self.generation = int(message["generation"])
            self.user, self.role = str(message["user"]), str(message["role"])
            self.nodes = {}
        for event in message.get("events", ()):
            self._apply_event(event)
        for node in message.get("nodes", ()):
            self.nodes[node["name"]] = {key: node.get(key) for key in _NODE_SHOWN}
            self._dirty_nodes.add(node["name"])
        for name in message.get("nodes_removed", ()):
            self.nodes.pop(name, None)
            self._dirty_nodes.add(name)
        for row in message.get("jobs", ()):
            self._apply_row(row)
        for number, values in message.get("live", {}).items():
            self._apply_live(int(number), values)
        return is_first

    def lose(self, why: str) -> None:
        """Record that the server does not answer, and the reason as text."""
        self.connected, self.lost_why = False, why

    def set_starts(self, starts: Mapping[str, Any]) -> None:
        """Set the expected starts of waiting jobs, as the operation ``starts`` returns them."""
        before, self.starts = self.starts, dict(starts)
        changed = {key for key in {*before, *starts} if before.get(key) != starts.get(key)}
        self._dirty_jobs.update(int(key) for key in changed)

    def _apply_event(self, event: Mapping[str, Any]) -> None:
        changed = self.tracks.apply(event)
        if changed is not None:
            self._dirty_jobs.add(changed)
        self._usable.apply(event)
        time, data = float(event["time"]), event.get("data") or {}
        if event["kind"] == "job.resized":
            self._pauses.append((time, float((data.get("seconds") or {}).get("total", 0.0))))
        elif event["kind"] == "offer.answered":
            self._answers.append((time, str(data.get("answer"))))
        if event["kind"] not in _QUIET:
            self.events.append(dict(event))
            self._new_events.append(dict(event))
            del self._new_events[:-EVENTS_KEPT]

    def _apply_row(self, row: Mapping[str, Any]) -> None:
        number = int(row["id"])
        measured = self.rows.get(number, {}).get("progress")
        self.rows[number] = {key: row[key] for key in _SHOWN if row.get(key) is not None}
        if measured is not None:  # the daemon forgets what a job measured when it ends
            self.rows[number].setdefault("progress", measured)
        self.tracks.update_from_row(row)
        self._dirty_jobs.add(number)

    def _apply_live(self, number: int, values: Mapping[str, Any]) -> None:
        if number in self.rows:
            self.rows[number] |= {key: values[key] for key in _SHOWN if key in values}
            self._dirty_jobs.add(number)

    def forget_old(self) -> None:
        """Drop jobs that ended more than `WINDOW_S` seconds ago, to bound the memory."""
        for number in self.tracks.drop_ended(self.now - WINDOW_S):
            self.rows.pop(number, None)
            self._gone.append(number)
        for recent in (self._pauses, self._answers):
            while recent and recent[0][0] < self.now - RECENT_S:
                recent.popleft()

    # ---------------------------------------------------------------- read

    def job(self, track: JobTrack) -> dict[str, Any]:
        """Return the data of a job for the page: its values, sizes over time, and forecast."""
        found: dict[str, Any] = {
            "id": track.id,
            "name": track.name,
            "user": track.user,
            "state": track.state,
            "sizes": track.sizes,
            "submit": track.submit,
            "start": track.start,
            "end": track.end,
            **self.rows.get(track.id, {}),
            "hue": track.hue,
            "segments": [segment.to_row() for segment in track.segments],
            "marks": track.marks,
        }
        if (forecast := self.starts.get(str(track.id))) is not None:
            found["forecast"] = forecast
        return found

    def snapshot(self, window_s: float) -> dict[str, Any]:
        """Return all data of the page for the last ``window_s`` seconds.

        Jobs that ended before are left out.
        """
        since = self.now - window_s
        tracks = self.tracks.by_job.values()
        jobs = [self.job(track) for track in tracks if track.end is None or track.end >= since]
        return {
            **self.header(),
            "window": window_s,
            "usable": self._usable_steps(),
            "nodes": list(self.nodes.values()),
            "jobs": jobs,
            "events": list(self.events),
        }

    def header(self) -> dict[str, Any]:
        """Return the page's values that belong to no job or node, such as the strategy."""
        return {
            "v": 1,
            "seq": self.seq,
            "generation": self.generation,
            "now": self.now,
            "strategy": self.strategy,
            "connected": self.connected,
            "lost_why": self.lost_why,
            "stats": self._stats(),
        }

    def take_changes(self) -> dict[str, Any]:
        """Return the changes since the last call, together with the values of `header`.

        A key such as ``jobs`` or ``nodes`` is missing if nothing of it has changed.
        """
        changes = self.header()
        jobs = [
            self.job(self.tracks.by_job[number])
            for number in sorted(self._dirty_jobs)
            if number in self.tracks.by_job
        ]
        nodes = [self.nodes[name] for name in sorted(self._dirty_nodes) if name in self.nodes]
        removed = sorted(name for name in self._dirty_nodes if name not in self.nodes)
        parts: Iterable[tuple[str, list[Any]]] = (
            ("jobs", jobs),
            ("nodes", nodes),
            ("nodes_removed", removed),
            ("events", self._new_events),
            ("gone", self._gone),
        )
        changes.update((key, values) for key, values in parts if values)
        if nodes or removed:
            changes["usable"] = self._usable_steps()
        self._dirty_jobs, self._dirty_nodes = set(), set()
        self._new_events, self._gone = [], []
        return changes

    def _usable_steps(self) -> list[tuple[float, int]]:
        self._usable.set_nodes(self.nodes.values())
        return self._usable.steps(self.now - WINDOW_S)

    def _stats(self) -> dict[str, Any]:
        pauses = sorted(seconds for _, seconds in self._pauses)
        answers = [answer for _, answer in self._answers]
        return {
            "resizes": len(pauses),
            "median_pause_s": pauses[len(pauses) // 2] if pauses else None,
            "accepted": answers.count("ACCEPT"),
            "countered": answers.count("COUNTER"),
            "refused": answers.count("REJECT"),
        }
