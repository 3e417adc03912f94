"""Make the timeline of a recorded history: jobs, marks and nodes from its events."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from pliant.charts.allocations_from_history import JobTracks
from pliant.charts.job_sizes_over_time import Band, band_of
from pliant.charts.layout import SHORTEST_S, Window
from pliant.charts.processor_gantt import Lanes, Node
from pliant.charts.timeline import Timeline
from pliant.charts.usable_processors import UsableProcessors
from pliant.core.support.input_limits import MAX_PROCESSORS

#: Later times are seconds since the epoch (2001 and on). Simulations begin at 0.
_EPOCH_TIMES_S = 1e9
#: The year 9000. Calendars end before the year 10000.
MAX_TIME_S = 2.2e11


class RecordingError(ValueError):
    """An event has a value that no picture can show."""


class Recording:
    """Collects the events of a history, and makes a timeline of them.

    Apply the events in their order.
    """

    def __init__(self) -> None:
        self._tracks = JobTracks()
        self._usable = UsableProcessors()
        self._nodes: dict[str, Node] = {}
        self._first: float | None = None
        self._last = 0.0

    def apply(self, event: Mapping[str, Any]) -> None:
        """Apply an event: a mapping with ``time``, ``kind``, ``job`` and ``data``.

        Raises:
            RecordingError: a time or the number of a processor is out of range.
        """
        time = float(event["time"])
        _check_range("time", time, MAX_TIME_S)
        _check_processors(event.get("data") or {})
        self._tracks.apply(event)
        self._usable.apply(event)
        if event.get("job") is not None and self._first is None:
            self._first = time
        self._last = max(self._last, time)
        data = event.get("data") or {}
        if event["kind"] == "node.registered" and "slots" in data:
            rows = [{"name": data["node"], "first": data.get("first"), "slots": data["slots"]}]
            self._nodes[str(data["node"])] = node_rows(rows)[0]

    @property
    def first(self) -> float:
        """Return the time in seconds of the first event of a job; 0 if there is no such event."""
        return self._first or 0.0

    @property
    def is_clock(self) -> bool:
        """Return whether times are seconds since the epoch; False if the times are simulated."""
        return self._last >= _EPOCH_TIMES_S

    def bands(self) -> list[Band]:
        """Return a band (the shape of a job in the picture) for each job of the recording."""
        return [band_of(track) for track in self._tracks.by_job.values()]

    def timeline(
        self,
        title: str,
        *,
        nodes: Sequence[Mapping[str, Any]] = (),
        since: float | None = None,
        until: float | None = None,
        by_processor: bool = False,
    ) -> Timeline:
        """Return the picture of the recording.

        Args:
            title: the line above the picture.
            nodes: the nodes, each with ``name``, ``slots`` and, if known, ``first``; by default
                those that the recording names.
            since: the first time of the picture, by default that of the first event of a job.
            until: the last time, by default that of the last event.
            by_processor: draw which processors the jobs held instead of stacking the jobs.
        """
        bands = self.bands()
        used = {index for band in bands for hold in band.holds for index in hold.processors}
        rows = with_unknown(node_rows(nodes) if nodes else list(self._nodes.values()), used)
        start = self.first if since is None else since
        end = self._last if until is None else until
        return Timeline(
            bands,
            sum(row.slots for row in rows),
            Window(start, max(end, start + SHORTEST_S), self._last),
            title,
            is_clock=self.is_clock,
            origin=self.first,
            usable=self._usable.steps(start),
            lanes=Lanes(rows) if by_processor else None,
        )


def _check_processors(data: Mapping[str, Any]) -> None:
    """Check that the slots and processor numbers of an event are in range.

    A number that is too large would make sets that do not fit into memory.

    Raises:
        RecordingError: a number is out of range.
    """
    for name in ("slots", "first"):
        if data.get(name) is not None:
            _check_range(name, float(data[name]), MAX_PROCESSORS)
    processors = data.get("processors") or ()
    if processors:
        _check_range("processors", float(max(processors)), MAX_PROCESSORS)
        _check_range("processors", float(min(processors)), MAX_PROCESSORS)


def _check_range(name: str, value: float, largest: float) -> None:
    if not 0 <= value <= largest:
        raise RecordingError(f"{name}: {value:g} is not between 0 and {largest:g}")


def node_rows(nodes: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Return the first processor and the number of processors of each node, as rows of the picture.

    If the first processor of a node is not known, it is taken to follow the last processor of the
    previous node.
    """
    rows, following = [], 0
    for node in nodes:
        first = int(node["first"]) if node.get("first") is not None else following
        rows.append(Node(str(node["name"]), first, int(node["slots"])))
        following = first + int(node["slots"])
    return sorted(rows, key=lambda row: row.first)


def with_unknown(rows: Sequence[Node], used: Iterable[int]) -> list[Node]:
    """Return the rows, with additional rows for those ``used`` processors that belong to no node.

    The node of such a processor may have left the cluster. The name of an additional row is ``?``.
    """
    ordered = sorted(rows, key=lambda row: row.first)
    firsts = [row.first for row in ordered]
    ends = [0, *accumulate((row.first + row.slots for row in ordered), max)]
    found = list(rows)
    for index in sorted(set(used)):
        if index < ends[bisect_right(firsts, index)]:
            continue
        last = found[-1] if found and found[-1].name == "?" else None
        if last is not None and last.first + last.slots == index:
            found[-1] = last._replace(slots=last.slots + 1)
        else:
            found.append(Node("?", index, 1))
    return sorted(found, key=lambda row: row.first)
