"""``job.rng``: one stream of random numbers for each process, reproducible at any size.

The processes of the first start get streams by rank, joining processes get the next ones in the
order in which they join. Stream ``k`` of a seed is always the same, and no two processes of a job
ever use the same stream, not even after one of them has left.
"""

import json

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit.appkit_errors import CheckpointError
from pliant.appkit.data.registered_data import Description, GatheredMetadata, RegisteredData
from pliant.appkit.mpi.membership import Membership
from pliant.appkit.redistribution.range_exchange import RangeBuffer, exchange_ranges
from pliant.appkit.redistribution.transfer_plan import RangePlan, RankMap, plan_replicated
from pliant.appkit.storage.array_files import ArrayReader, ArrayWriter


def stream(seed: int, number: int) -> np.random.Generator:
    """Return a generator for stream ``number`` of a seed; different numbers are independent."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(number,))))


class RandomStreams(RegisteredData):
    """The handle that ``job.rng`` returns; ``generator`` is the random stream of this process.

    The generator stays the same object in all resizes until the process leaves.
    """

    def __init__(self, membership: Membership, name: str, seed: int) -> None:
        """Describe the random streams of a seed; see ``Job.rng``. A stream is started later."""
        if seed < 0:
            raise ValueError(f"rng {name!r}: seed {seed} is negative")
        self.name = name
        self.seed = seed
        self._membership = membership
        self._generator: np.random.Generator | None = None
        # Number of streams that have been assigned; sent to joining processes.
        self._given: NDArray[np.int64] = np.zeros(1, np.int64)
        self._joins: tuple[int, int] | None = (
            None  # index among the joining processes, and their number
        )

    def start_with(self) -> None:
        """Start the stream whose number is this process's rank, at the first start of the job."""
        self._generator = stream(self.seed, self._membership.rank)
        self._given[0] = self._membership.size

    @property
    def generator(self) -> np.random.Generator:
        """Return this process's generator, a numpy PCG64; no other process uses its stream."""
        self._membership.check()
        assert self._generator is not None
        return self._generator

    def describe(self) -> Description:
        """Return kind, name and seed as JSON values, to compare registrations."""
        return ["rng", self.name, self.seed]

    def prepare(self, rank_map: RankMap, me: int, gathered: GatheredMetadata = ()) -> None:
        """Record how many processes join, and the index of this process among them.

        The index determines which new stream a joining process starts in `commit`.
        """
        joining = [process for process in rank_map.new if process not in rank_map.old]
        place = joining.index(me) if me in joining else -1
        self._joins = (place, len(joining))

    def plan(self, rank_map: RankMap, gathered: GatheredMetadata = ()) -> RangePlan:
        """Return the transfers of a resize: each joining process gets the number of used streams.

        The number counts all streams that any process has been given, also those of processes that
        have left.
        """
        return plan_replicated(1, rank_map, 8)

    def estimate(self, rank_map: RankMap) -> int:
        """Return how many bytes a resize sends for the streams: 8 for each joining process."""
        return self.plan(rank_map).bytes_moved

    def move(self, plan: RangePlan, comm: MPI.Intracomm, tag: int) -> None:
        """Send the number of streams given out so far to the joining processes."""
        own = RangeBuffer(self._given, 0)
        here = self._generator is not None
        exchange_ranges(plan, comm, own if here else None, None if here else own, tag)

    def commit(self) -> None:
        """On a joining process, start a stream that no process has used; others continue theirs."""
        assert self._joins is not None
        place, joining = self._joins
        if self._generator is None:
            self._generator = stream(self.seed, int(self._given[0]) + place)
        self._given[0] += joining

    def rollback(self) -> None:
        """Keep the streams as they were before the resize."""
        self._joins = None

    def save(self, out: ArrayWriter) -> None:
        """Write the state of this process's stream."""
        state = json.dumps(self.generator.bit_generator.state).encode()
        out.write(np.frombuffer(state, np.uint8), given=int(self._given[0]))

    def restore(self, source: ArrayReader, rank: int, size: int) -> None:
        """Continue the saved stream of rank ``rank``; start an unused one if that rank is new."""
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
