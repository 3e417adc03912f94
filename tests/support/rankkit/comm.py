"""A communicator of threads: the few calls that moving data needs, and what they sent."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pytest
from mpi4py import MPI

from pliant.appkit.mpi import joining_rank_watch, tags
from pliant.appkit.redistribution import packed_exchange, range_exchange

T = TypeVar("T")

#: Tags of what ranks tell each other about a resize, which is not counted.
_NOT_DATA = (tags.JOINED,)

#: A message that does not come in this time never comes, seconds.
PATIENCE_S = 30.0


class _World:
    def __init__(self, size: int) -> None:
        self.size = size
        self.boxes: dict[tuple[int, int, int], queue.Queue[_Message]] = defaultdict(queue.Queue)
        self.barrier = threading.Barrier(size)
        self.slots: list[Any] = [None] * size
        self.bytes_sent = [0] * size
        self.longest = 0
        self.lock = threading.Lock()


#: What is under way: a view of the sender's bytes, and the word that they were taken.
_Message = tuple[memoryview, threading.Event]


class _Send:
    def __init__(self, taken: threading.Event) -> None:
        self._taken = taken

    def wait(self) -> None:
        assert self._taken.wait(PATIENCE_S), "nobody receives it"


class _Receive:
    def __init__(self, box: queue.Queue[_Message], into: Any) -> None:
        self._box, self._into = box, into

    def wait(self) -> None:
        data, taken = self._box.get(timeout=PATIENCE_S)
        assert len(data) == self._into.size, "both ends cut alike"
        self._into[:] = data
        taken.set()


def _bytes(spec: Any) -> Any:
    """Return the bytes of a buffer that mpi4py takes: an array, [data, type], [data, n, type]."""
    data, *terms = spec if isinstance(spec, list) else [spec]
    whole = data if isinstance(data, np.ndarray) else np.frombuffer(data, dtype=np.uint8)
    flat = whole.reshape(-1).view(np.uint8)
    return flat[: terms[0]] if len(terms) > 1 else flat


class ThreadComm:
    """One rank."""

    def __init__(self, world: _World, rank: int) -> None:
        self._world = world
        self.rank, self.size = rank, world.size

    def Isend(self, spec: Any, target: int, tag: int) -> _Send:
        data = _bytes(spec)
        with self._world.lock:
            box = self._world.boxes[self.rank, target, tag]
            if tag not in _NOT_DATA:
                self._world.bytes_sent[self.rank] += data.size
                self._world.longest = max(self._world.longest, data.size)
        assert target != self.rank, "what stays is not sent"
        taken = threading.Event()
        box.put((data.data, taken))
        return _Send(taken)

    def Irecv(self, spec: Any, source: int, tag: int) -> _Receive:
        with self._world.lock:
            box = self._world.boxes[source, self.rank, tag]
        return _Receive(box, _bytes(spec))

    def allgather(self, value: T) -> list[T]:
        world = self._world
        world.slots[self.rank] = value
        world.barrier.wait(PATIENCE_S)
        values = list(world.slots)
        world.barrier.wait(PATIENCE_S)
        return values

    def bcast(self, value: T, root: int = 0) -> T:
        return self.allgather(value)[root]

    def gather(self, value: T, root: int = 0) -> list[T] | None:
        values = self.allgather(value)
        return values if self.rank == root else None

    def alltoall(self, values: list[Any]) -> list[Any]:
        return [own[self.rank] for own in self.allgather(values)]


def _wait_all(requests: list[Any], _: list[Any]) -> None:
    for request in requests:
        request.wait()


@contextmanager
def _instead_of_mpi() -> Iterator[None]:
    request = SimpleNamespace(Waitall=_wait_all)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_exchange, "MPI", SimpleNamespace(BYTE=MPI.BYTE))
        patch.setattr(joining_rank_watch, "MPI", SimpleNamespace(Request=request, BYTE=MPI.BYTE))
        mpi = SimpleNamespace(Request=request, Exception=MPI.Exception, BYTE=MPI.BYTE)
        patch.setattr(range_exchange, "MPI", mpi)
        yield


def run_ranks(size: int, function: Callable[[Any], T]) -> tuple[list[T], _World]:
    """Call a function with each rank's communicator at the same time; what they returned."""
    world = _World(size)
    with _instead_of_mpi(), ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(function, ThreadComm(world, rank)) for rank in range(size)]
        results = [future.result() for future in futures]
    assert all(box.empty() for box in world.boxes.values()), "all that was sent was received"
    for key in [key for key in world.boxes if key[2] in _NOT_DATA]:
        del world.boxes[key]
    return results, world
