"""The worlds of jobs: which rank of which world sits on which processor.

A world belongs to (job, run, resize): the ranks started at one time, an MPI_COMM_WORLD of its own.
Written by the threads execute (a world is launched) and remove (it has ended); values are
immutable, so everybody reads without a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from pliant.core.values.ids import JobId, NodeName, ResizeId


@dataclass(frozen=True, slots=True)
class World:
    """The ranks of one start."""

    name: str
    job: JobId
    run: int
    resize: ResizeId
    epoch: int
    #: In rank order.
    processors: tuple[int, ...]
    nodes: frozenset[NodeName]

    @property
    def spans_nodes(self) -> bool:
        """Whether its barriers need the server."""
        return len(self.nodes) > 1


class WorldRegistry:
    """The worlds of all jobs that have not ended, as long as they have ranks."""

    def __init__(self, cluster: str) -> None:
        #: Short name of this cluster: two clusters on one host must not share a world's name.
        self._cluster = cluster
        self._lock = threading.Lock()
        self._by_name: dict[str, World] = {}
        self._by_job: dict[JobId, tuple[World, ...]] = {}

    def name(self, job: JobId, run: int, resize: ResizeId) -> str:
        """The globally unique name of a world."""
        return f"{self._cluster}.j{job}.r{run}.w{resize}"

    def add(self, world: World) -> None:
        """Remember a world, also again."""
        with self._lock:
            others = tuple(w for w in self._by_job.get(world.job, ()) if w.name != world.name)
            self._by_job[world.job] = (*others, world)
            self._by_name[world.name] = world

    def drop(self, world: World) -> None:
        """Forget a world whose last rank is gone; its job may go on."""
        with self._lock:
            self._by_name.pop(world.name, None)
            if world.job in self._by_job:
                others = tuple(w for w in self._by_job[world.job] if w.name != world.name)
                self._by_job[world.job] = others

    def get(self, name: str) -> World | None:
        """A world by its name."""
        return self._by_name.get(name)

    def of_job(self, job: JobId, run: int) -> tuple[World, ...]:
        """The worlds of a run, oldest first."""
        return tuple(world for world in self._by_job.get(job, ()) if world.run == run)

    def nodes(self, job: JobId, run: int) -> set[NodeName]:
        """Every node that holds or held a part of this run."""
        return {name for world in self.of_job(job, run) for name in world.nodes}

    def latest(self, job: JobId, run: int, processor: int) -> tuple[World, int] | None:
        """The world and rank last started on a processor."""
        for world in reversed(self.of_job(job, run)):
            if processor in world.processors:
                return world, world.processors.index(processor)
        return None

    def forget(self, job: JobId) -> Iterable[World]:
        """Drop the worlds of an ended job and return them."""
        with self._lock:
            worlds = self._by_job.pop(job, ())
            for world in worlds:
                self._by_name.pop(world.name, None)
        return worlds
