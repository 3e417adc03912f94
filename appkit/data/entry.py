"""What follows the job through a resize, in order of registration."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from mpi4py import MPI

from pliant.appkit.errors import DuplicateName
from pliant.appkit.redistribution.exchange import Array
from pliant.appkit.redistribution.plan import RankMap, TransferPlan
from pliant.appkit.storage.chunks import ArrayReader, ArrayWriter

#: Kind, name and terms of one registered thing, in a form that JSON can carry.
Description = list[object]

#: What was told of one entry: for each round, what each process said, None where it had nothing.
GatheredMetadata = tuple[tuple[Any, ...], ...]


class Entry(ABC):
    """One registered thing.

    A resize calls census (as often as the entry has rounds), prepare, plan, move, then commit or
    rollback; a checkpoint calls save, and the start that goes on from it restore.
    """

    name: str
    #: Exchanges of local facts before a plan can be made; the same on all processes.
    metadata_rounds: int = 0

    def local_metadata(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> Any:
        """What this process, one of the old ones, tells in the next round: small and picklable.

        Args:
            rank_map: between which processes.
            me: this one.
            gathered: what was told in the rounds before.

        Raises:
            DistributionError: the program's own functions do not say where things belong.
        """
        raise NotImplementedError

    @abstractmethod
    def describe(self) -> Description:
        """What must be equal on all processes."""

    def preallocate(self, size: int, rank: int) -> list[Array]:
        """Allocate the new part of rank ``rank`` of ``size`` in advance, and return its memory.

        Nothing happens where the sizes alone do not tell what the part will be. No MPI.

        Raises:
            DistributionError, MemoryError: as prepare, which comes anyhow.
        """
        return []

    @abstractmethod
    def prepare(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> None:
        """Allocate the new part beside the old one.

        Raises:
            DistributionError: the program's own functions do not say where things belong.
            MemoryError: there is no room.
        """

    @abstractmethod
    def plan(self, rank_map: RankMap, gathered: GatheredMetadata) -> TransferPlan:
        """Who sends what to whom; after prepare."""

    def plan_checksum(self, plan: Any) -> int:
        """What tells this plan from another: it is compared with that of the other processes."""
        return hash(plan)

    @abstractmethod
    def estimate(self, rank_map: RankMap) -> int:
        """Bytes that would probably change their process.

        From any thread, and without any exchange.
        """

    @abstractmethod
    def move(self, plan: Any, comm: MPI.Intracomm, tag: int) -> None:
        """Fill the new part, leave the old one as it is.

        Args:
            plan: what ``plan`` gave.
            comm: of all who take part.
            tag: of the messages.
        """

    @abstractmethod
    def commit(self) -> None:
        """Let the new part take the place of the old one."""

    @abstractmethod
    def rollback(self) -> None:
        """Drop the new part."""

    @abstractmethod
    def save(self, out: ArrayWriter) -> None:
        """Write what this process owns; what all have is written by rank 0 alone. No MPI.

        Raises:
            OSError: it cannot be written.
        """

    @abstractmethod
    def restore(self, source: ArrayReader, rank: int, size: int) -> None:
        """Make the part of rank ``rank`` of ``size`` and fill it from what all had written.

        Reads only what this process will own. No MPI.

        Raises:
            CheckpointError: something is missing or damaged.
            MemoryError: there is no room.
        """


class Registry:
    """The registered entries, the same in the same order on every process."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        """Register.

        Raises:
            DuplicateName: there is one of this name.
        """
        if entry.name in self._entries:
            raise DuplicateName(f"{entry.name!r} is registered already")
        self._entries[entry.name] = entry

    def description(self) -> list[Description]:
        """All entries' descriptions."""
        return [entry.describe() for entry in self]

    @property
    def metadata_rounds(self) -> int:
        """Exchanges before the plans can be made; 0, as for fixed layouts: none."""
        return max((entry.metadata_rounds for entry in self), default=0)
