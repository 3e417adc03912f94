"""The base class of everything that a program registers, and the registry of a job."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from mpi4py import MPI

from pliant.appkit.appkit_errors import DuplicateName
from pliant.appkit.redistribution.range_exchange import Array
from pliant.appkit.redistribution.transfer_plan import RankMap, TransferPlan
from pliant.appkit.storage.array_files import ArrayReader, ArrayWriter

#: Kind, name and parameters of one registered object, as JSON values.
Description = list[object]

#: The metadata of one entry: for each round one value of each process, None if it had none.
GatheredMetadata = tuple[tuple[Any, ...], ...]


class RegisteredData(ABC):
    """An object that the program has registered: an array, items or values.

    A resize calls `local_metadata` (`metadata_rounds` times), `prepare`, `plan` and `move`, then
    `commit` or `rollback`. A checkpoint calls `save`, and a start from a checkpoint `restore`.
    """

    name: str
    #: Number of metadata exchanges that the plan needs; the same on all processes.
    metadata_rounds: int = 0

    def local_metadata(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> Any:
        """Return the metadata that this process sends to all others in the next round of exchange.

        They are what the others need for the plan, for example the number of items of this process.
        The result must be small and picklable. Joining processes are not asked.

        Args:
            rank_map: The processes before and after.
            me: The number of this process in ``rank_map``.
            gathered: The metadata of the previous rounds.

        Raises:
            DistributionError: The program's function that assigns items to ranks is wrong: it
                raised an exception, or did not return one valid rank for each item.
        """
        raise NotImplementedError

    @abstractmethod
    def describe(self) -> Description:
        """Return kind, name and parameters of the object as JSON values, equal on all processes.

        Joining processes must have equal descriptions, and so must a checkpoint to be restored.
        """

    def preallocate(self, size: int, rank: int) -> list[Array]:
        """Allocate the part for rank ``rank`` of ``size`` before a resize, and return its memory.

        Does nothing and returns an empty list if the two numbers do not determine the part. No MPI.

        Raises:
            DistributionError, MemoryError: as in `prepare`, which is called later in any case.
        """
        return []

    @abstractmethod
    def prepare(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> None:
        """Allocate the part that this process will own after a resize, in addition to the present.

        Raises:
            DistributionError: The program's function that assigns cells or items to ranks raised
                an exception, or did not return one valid rank for each.
            MemoryError: The memory is not sufficient.
        """

    @abstractmethod
    def plan(self, rank_map: RankMap, gathered: GatheredMetadata) -> TransferPlan:
        """Return how much of this object each process sends to each other process in a resize.

        Called after `prepare`. All processes must make the same plan.
        """

    def plan_checksum(self, plan: Any) -> int:
        """Return a checksum of ``plan``, by which processes check that their plans agree."""
        return hash(plan)

    @abstractmethod
    def estimate(self, rank_map: RankMap) -> int:
        """Estimate how many bytes of this object a resize would send, over the whole job.

        Called from any thread, so it must not communicate.
        """

    @abstractmethod
    def move(self, plan: Any, comm: MPI.Intracomm, tag: int) -> None:
        """Fill the part that `prepare` allocated; the present part stays unchanged.

        Args:
            plan: The result of `plan`.
            comm: Contains all processes of the resize.
            tag: The tag of the messages.
        """

    @abstractmethod
    def commit(self) -> None:
        """Switch to the part that `move` has filled; called when all processes have succeeded."""

    @abstractmethod
    def rollback(self) -> None:
        """Discard the part that `prepare` allocated, because the resize failed."""

    @abstractmethod
    def save(self, out: ArrayWriter) -> None:
        """Write this process's part to a checkpoint, without MPI.

        Of data that all processes have, only rank 0 writes its copy.

        Raises:
            OSError: The file cannot be written.
        """

    @abstractmethod
    def restore(self, source: ArrayReader, rank: int, size: int) -> None:
        """Allocate the part of rank ``rank`` of ``size``, and fill it from a checkpoint.

        Reads only the data that this process will own. No MPI.

        Raises:
            CheckpointError: Data are missing or damaged.
            MemoryError: The memory is not sufficient.
        """


class Registry:
    """The objects that the program has registered (entries), in the same order on every process."""

    def __init__(self) -> None:
        self._entries: dict[str, RegisteredData] = {}

    def __iter__(self) -> Iterator[RegisteredData]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: RegisteredData) -> None:
        """Add an entry.

        Raises:
            DuplicateName: An entry of this name exists.
        """
        if entry.name in self._entries:
            raise DuplicateName(f"{entry.name!r} is registered already")
        self._entries[entry.name] = entry

    def description(self) -> list[Description]:
        """Return the descriptions of all entries, in order (`RegisteredData.describe`)."""
        return [entry.describe() for entry in self]

    @property
    def metadata_rounds(self) -> int:
        """Return how often processes exchange metadata before they plan a resize; 0 for never."""
        return max((entry.metadata_rounds for entry in self), default=0)
