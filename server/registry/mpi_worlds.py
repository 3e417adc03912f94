"""The worlds of jobs: which rank of which world runs on which processor.

A world is a set of ranks that were started together and share an MPI_COMM_WORLD. It is identified
by (job, run, resize). The execute thread adds a world when it is launched, the remove thread drops
it when its last rank has exited. Values are immutable, so reading needs no lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from pliant.core.values.ids import JobId, NodeName, ResizeId


@dataclass(frozen=True, slots=True)
class World:
    """Ranks that were started together, with one MPI_COMM_WORLD, and where each of them runs."""

    name: str
    job: JobId
    run: int
    resize: ResizeId
    epoch: int
    #: The processor of each rank, in rank order.
    processors: tuple[int, ...]
    nodes: frozenset[NodeName]
    #: The processors of the ranks that this world joins, in rank order. Known only at its launch.
    joins: tuple[int, ...] = ()

    @property
    def spans_nodes(self) -> bool:
        """Return whether the ranks are on several nodes, so that the server merges barriers."""
        return len(self.nodes) > 1


class WorldRegistry:
    """The worlds (ranks started together) of all open jobs. May be used from any thread."""

    def __init__(self, cluster: str) -> None:
        #: Short name of this cluster, so that two clusters on one host never use the same name.
        self._cluster = cluster
        self._lock = threading.Lock()
        self._by_name: dict[str, World] = {}
        self._by_job: dict[JobId, tuple[World, ...]] = {}

    def name(self, job: JobId, run: int, resize: ResizeId) -> str:
        """Return the globally unique name of a world (ranks of a job that start together).

        Args:
            job: the number of the job.
            run: the run of the job.
            resize: the number of the resize that starts the ranks; 0 for the start of the run.
        """
        return f"{self._cluster}.j{job}.r{run}.w{resize}"

    def add(self, world: World) -> None:
        """Add a world (ranks that were started together), or replace the one of the same name."""
        with self._lock:
            others = tuple(w for w in self._by_job.get(world.job, ()) if w.name != world.name)
            self._by_job[world.job] = (*others, world)
            self._by_name[world.name] = world

    def drop(self, world: World) -> None:
        """Remove a world (ranks started together) whose last rank has exited.

        Its job may continue with ranks of other worlds.
        """
        with self._lock:
            self._by_name.pop(world.name, None)
            if world.job in self._by_job:
                others = tuple(w for w in self._by_job[world.job] if w.name != world.name)
                self._by_job[world.job] = others

    def get(self, name: str) -> World | None:
        """Return the world (ranks started together) of this name; None if it is unknown."""
        return self._by_name.get(name)

    def of_job(self, job: JobId, run: int) -> tuple[World, ...]:
        """Return the worlds (ranks started together) of one run of a job, oldest first."""
        return tuple(world for world in self._by_job.get(job, ()) if world.run == run)

    def nodes(self, job: JobId, run: int) -> set[NodeName]:
        """Return every node on which ranks of this run of the job were started."""
        return {name for world in self.of_job(job, run) for name in world.nodes}

    def latest(self, job: JobId, run: int, processor: int) -> tuple[World, int] | None:
        """Return the world (ranks started together) and the rank last started on a processor.

        None if none was started there in this run of the job.
        """
        for world in reversed(self.of_job(job, run)):
            if processor in world.processors:
                return world, world.processors.index(processor)
        return None

    def forget(self, job: JobId) -> Iterable[World]:
        """Remove the worlds (sets of ranks started together) of an ended job, and return them."""
        with self._lock:
            worlds = self._by_job.pop(job, ())
            for world in worlds:
                self._by_name.pop(world.name, None)
        return worlds
