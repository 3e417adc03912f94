"""The nodes in the status cache: rows for queries, and the map from processors to nodes.

The cost of changing one node does not depend on the number of nodes, because 1000 controllers
register within seconds when a server starts. The sorted list and the processor map, which need all
nodes, are made again on the next request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pliant.core.model.nodes import Node, NodeLoad, NodeState, max_load_age_s
from pliant.core.model.views_and_plans import NodeView
from pliant.core.state.view_cache import node_view
from pliant.core.values.ids import JobId, NodeName
from pliant.core.values.processors import NONE, ProcessorMap, count
from pliant.server.registry.processor_nodes import Host, NodeMap

#: A node as the users' socket shows it, without the jobs on it.
_Row = Mapping[str, Any]


class NodeStatusCache:
    """Nodes as of the last commit. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[NodeName, _Row] = {}
        self._hosts: dict[NodeName, Host] = {}
        self._views: dict[NodeName, NodeView] = {}
        #: None if nodes were added, removed or moved since the map was made.
        self._map: NodeMap | None = NodeMap()
        self._processors = self._up = 0
        #: By node, what enforces the share of each job there; kept only while the server runs.
        self._containment: dict[NodeName, Mapping[str, str]] = {}
        #: By node, whether jobs there can use the folder of checkpoints.
        self._checkpoint_folders: dict[NodeName, str] = {}
        #: By node, its memory load, when it arrived (monotonic clock), and the age at which it is
        #: stale, in seconds.
        self._loads: dict[NodeName, tuple[NodeLoad, float, float]] = {}

    def publish_containment(self, node: NodeName, texts: Mapping[str, str]) -> None:
        """Set the texts that show how a node enforces each kind of limit on jobs.

        Args:
            node: the node.
            texts: by kind of limit (``cpus``, ``memory``, ``processes``, ``devices``), the name of
                the mechanism, such as ``cpuset``, or why the limit is not enforced.
        """
        with self._lock:
            self._containment[node] = texts

    def publish_checkpoint_folder(self, node: NodeName, text: str) -> None:
        """Set the text that shows users whether a node shares the folder of checkpoints.

        Args:
            node: the node.
            text: the result of `SharedFolderProbe.evaluate`.
        """
        with self._lock:
            self._checkpoint_folders[node] = text

    def publish_load(self, node: NodeName, load: NodeLoad, interval_s: float) -> None:
        """Set the memory load of a node, which it measures each ``interval_s`` seconds."""
        with self._lock:
            self._loads[node] = load, time.monotonic(), max_load_age_s(interval_s)

    def publish(self, nodes: Iterable[Node], gone: Iterable[NodeName] = ()) -> None:
        """Publish the state of these nodes, and remove the nodes in ``gone``."""
        with self._lock:
            for name in gone:
                self._forget(name)
            for node in nodes:
                self._publish(node)

    def _publish(self, node: Node) -> None:
        host = Host(node.name, node.first, node.slots, node.address)
        moved = self._hosts.get(node.name) != host
        self._count(self._rows.get(node.name), -1)
        self._rows[node.name] = row = _row(node)
        self._count(row, +1)
        self._views.pop(node.name, None)
        if not node.spare:
            self._views[node.name] = node_view(node)
        if moved:
            self._hosts[node.name] = host
            self._map = None

    def _forget(self, name: NodeName) -> None:
        self._count(self._rows.pop(name, None), -1)
        self._views.pop(name, None)
        self._containment.pop(name, None)
        self._checkpoint_folders.pop(name, None)
        self._loads.pop(name, None)
        if self._hosts.pop(name, None) is not None:
            self._map = None

    def _count(self, row: _Row | None, sign: int) -> None:
        if row is not None:
            self._processors += 0 if row["spare"] else sign * row["slots"]
            self._up += sign * (row["state"] == NodeState.UP)

    @property
    def processors(self) -> int:
        """Return the number of processors of all known nodes. No job can be larger.

        Spare nodes, which only replace lost nodes, do not count.
        """
        return self._processors

    def views(self) -> list[NodeView]:
        """Return the nodes on which jobs could run, including those that are lost or drained.

        Spare nodes, which only replace lost nodes, are left out.
        """
        with self._lock:
            nodes = sorted(self._views.values(), key=lambda node: node.processors)
        return nodes

    @property
    def up(self) -> int:
        """Return how many nodes accept new work at present."""
        return self._up

    def host(self, name: NodeName) -> Host | None:
        """Return the properties of a node that never change; None if the node is unknown."""
        return self._hosts.get(name)

    @property
    def map(self) -> NodeMap:
        """Return the map from processors to nodes, which is immutable."""
        with self._lock:
            if self._map is None:
                self._map = NodeMap.of(self._hosts.values())
            return self._map

    def rows(
        self,
        holders: Sequence[tuple[JobId, ProcessorMap]],
        idle_memory: Mapping[NodeName, int],
    ) -> list[dict[str, Any]]:
        """Return a description of every node for users, in the order of their processors.

        Args:
            holders: each job that holds processors, and these processors.
            idle_memory: free memory of each node in bytes.
        """
        nodes = self.map
        with self._lock:
            rows = sorted(self._rows.values(), key=lambda row: int(row["first"]))
            containment = {row["name"]: self._containment.get(row["name"], {}) for row in rows}
            folders = dict(self._checkpoint_folders)
            loads = dict(self._loads)
        now = time.monotonic()
        used: dict[NodeName, ProcessorMap] = {}
        jobs: dict[NodeName, list[JobId]] = {}
        for job, held in holders:
            for name, part in nodes.split(held):
                used[name] = used.get(name, NONE) | part
                jobs.setdefault(name, []).append(job)
        return [
            {
                **row,
                "used": count(used.get(row["name"], NONE)),
                "idle_memory_bytes": idle_memory.get(row["name"], 0),
                "jobs": sorted(jobs.get(row["name"], ())),
                "containment": dict(containment[row["name"]]),
                "checkpoints": folders.get(row["name"], ""),
                "load": _load_fields(*loads[row["name"]], now) if row["name"] in loads else None,
            }
            for row in rows
        ]


def _load_fields(load: NodeLoad, at: float, max_age_s: float, now: float) -> Mapping[str, Any]:
    """Return the memory load of a node in the form that users see.

    Args:
        load: the load that the node has measured.
        at: the time at which it arrived, in seconds of the monotonic clock.
        max_age_s: the age in seconds from which the load is marked as stale.
        now: the present time, on the same clock.
    """
    age_s = now - at
    return {
        "memory_bytes": round(load.memory),
        "demand_bytes": round(load.demand),
        "idle_bytes": round(load.idle),
        "major_faults_per_s": round(load.fault_rate, 1),
        "pressure_percent": load.pressure,
        "age_s": round(age_s, 1),
        "stale": age_s > max_age_s,
    }


def _row(node: Node) -> _Row:
    return {
        "name": node.name,
        "cluster": node.cluster,
        "state": node.state.value,
        "reason": node.reason,
        "first": node.first,
        "slots": node.slots,
        "memory_bytes": node.memory_bytes,
        "gres": dict(node.gres),
        "properties": list(node.properties),
        "address": node.address,
        "spare": node.spare,
        "reservation": node.reservation,
    }
