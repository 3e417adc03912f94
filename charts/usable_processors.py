"""Compute the number of usable processors over time from the history of the nodes.

No input or output. The history says when a node changed its state. The state of a node before its
first event follows from that event: if the node registers, it did not exist before, and if it
changes to another state than UP, it was UP before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_UP = "UP"
#: Steps that are kept.
MAX_STEPS = 500


class UsableProcessors:
    """How many processors were usable, and when, collected from events of nodes."""

    def __init__(self) -> None:
        #: By node, times and whether it was usable from then on.
        self._changes: dict[str, list[tuple[float, bool]]] = {}
        self._slots: dict[str, int] = {}
        #: Nodes that no line has named yet.
        self._assumed: set[str] = set()

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take an event of the history into account; those that are not about nodes are ignored."""
        kind, data = event["kind"], event.get("data") or {}
        if kind not in {"node.state", "node.registered", "node.removed"} or "node" not in data:
            return
        name, time = str(data["node"]), float(event["time"])
        is_up = kind != "node.removed" and data.get("state") == _UP
        known = self._changes.setdefault(name, [])
        if not known or name in self._assumed:
            self._assumed.discard(name)
            known.clear()
            was_up = kind != "node.registered" and not is_up
            known.append((float("-inf"), was_up))
        if known[-1][1] != is_up:
            known.append((time, is_up))
        if "slots" in data:
            self._slots[name] = int(data["slots"])

    def set_nodes(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        """Set the slots of the present nodes.

        A node without an event so far is taken to have always been in its present state.
        """
        for node in nodes:
            name = str(node["name"])
            self._slots[name] = int(node.get("slots") or 0)
            if name not in self._changes:
                self._changes[name] = [(float("-inf"), node.get("state") == _UP)]
                self._assumed.add(name)

    def steps(self, since: float) -> list[tuple[float, int]]:
        """Return pairs of a time and the number of usable processors from then on.

        The first time is ``since``.
        """
        level, changes = 0, []
        for name, known in self._changes.items():
            slots = self._slots.get(name, 0)
            was = False
            for time, is_up in known:
                step = (is_up - was) * slots
                was = is_up
                if time <= since:
                    level += step
                elif step:
                    changes.append((time, step))
        found = [(since, level)]
        for time, step in sorted(changes)[-MAX_STEPS:]:
            level += step
            found.append((time, level))
        return found
