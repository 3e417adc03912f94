"""Random numbers: a stream for each process, reproducible whatever the sizes have been.

Streams are numbered as processes begin: those of the first start by rank, then newcomers in the
order in which they joined. Stream ``k`` of a seed is always the same one, and no two processes of a
job, also those that have left, ever use one stream.
"""

import json

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit.data.entry import Description, Entry, GatheredMetadata
from pliant.appkit.errors import CheckpointError
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.exchange import RangeBuffer, exchange_ranges
from pliant.appkit.redistribution.plan import RangePlan, RankMap, plan_replicated
from pliant.appkit.storage.chunks import ArrayReader, ArrayWriter


def stream(seed: int, number: int) -> np.random.Generator:
    """The stream of a number: numpy's own way to have many of one seed."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(number,))))


class RandomStreams(Entry):
    """A handle of this process's generator: ``generator``; the same object as long as it stays."""

    def __init__(self, membership: Membership, name: str, seed: int) -> None:
        """Describe it; see ``Job.rng``."""
        if seed < 0:
            raise ValueError(f"rng {name!r}: seed {seed} is negative")
        self.name = name
        self.seed = seed
        self._membership = membership
        self._generator: np.random.Generator | None = None
        # Streams that have been given out; newcomers are sent it.
        self._given: NDArray[np.int64] = np.zeros(1, np.int64)
        self._joins: tuple[int, int] | None = None  # which newcomer of how many

    def start_with(self) -> None:
        """Begin this process's stream; for the first start."""
        self._generator = stream(self.seed, self._membership.rank)
        self._given[0] = self._membership.size

    @property
    def generator(self) -> np.random.Generator:
        """This process's generator: PCG64, of its stream."""
        self._membership.check()
        assert self._generator is not None
        return self._generator

    def describe(self) -> Description:
        """Kind, name and seed."""
        return ["rng", self.name, self.seed]

    def prepare(self, rank_map: RankMap, me: int, gathered: GatheredMetadata = ()) -> None:
        """Find out whether this is a newcomer, and which."""
        newcomers = [process for process in rank_map.new if process not in rank_map.old]
        place = newcomers.index(me) if me in newcomers else -1
        self._joins = (place, len(newcomers))

    def plan(self, rank_map: RankMap, gathered: GatheredMetadata = ()) -> RangePlan:
        """One number for each newcomer."""
        return plan_replicated(1, rank_map, 8)

    def estimate(self, rank_map: RankMap) -> int:
        """As planned."""
        return self.plan(rank_map).bytes_moved

    def move(self, plan: RangePlan, comm: MPI.Intracomm, tag: int) -> None:
        """Tell newcomers how many streams there are."""
        own = RangeBuffer(self._given, 0)
        here = self._generator is not None
        exchange_ranges(plan, comm, own if here else None, None if here else own, tag)

    def commit(self) -> None:
        """Newcomers begin a stream; the others go on with theirs."""
        assert self._joins is not None
        place, newcomers = self._joins
        if self._generator is None:
            self._generator = stream(self.seed, int(self._given[0]) + place)
        self._given[0] += newcomers

    def rollback(self) -> None:
        """Nothing has changed."""
        self._joins = None

    def save(self, out: ArrayWriter) -> None:
        """Write where this process's stream is."""
        state = json.dumps(self.generator.bit_generator.state).encode()
        out.write(np.frombuffer(state, np.uint8), given=int(self._given[0]))

    def restore(self, source: ArrayReader, rank: int, size: int) -> None:
        """Go on with the stream of this rank; those that were not there begin new ones."""
        if not source.arrays:
            raise CheckpointError(f"rng {self.name!r} is not in the checkpoint")
        given = int(source.arrays[0].where["given"])
        self._given[0] = given + max(0, size - source.size)
        if rank >= source.size:
            self._generator = stream(self.seed, given + rank - source.size)
            return
        (saved,) = [saved for saved in source.arrays if saved.rank == rank]
        state = np.empty(saved.shape, np.uint8)
        source.read(saved, 0, state)
        self._generator = stream(self.seed, 0)
        self._generator.bit_generator.state = json.loads(state.tobytes())

    def __repr__(self) -> str:
        return f"<RandomStreams {self.name!r} seed {self.seed}>"
