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

        It is small and picklable.

        Called on the old processes only.

        Args:
            rank_map: The processes before and after.
            me: This process, as in ``rank_map``.
            gathered: The metadata of the previous rounds.

        Raises:
            DistributionError: A function of the program does not return valid owners.
        """
        raise NotImplementedError

    @abstractmethod
    def describe(self) -> Description:
        """Return a description of the object as JSON values, equal on all processes."""

    def preallocate(self, size: int, rank: int) -> list[Array]:
        """Allocate the new part of rank ``rank`` of ``size`` in advance, and return its memory.

        Does nothing and returns an empty list if the two numbers do not determine the part. No MPI.

        Raises:
            DistributionError, MemoryError: as in `prepare`, which is called later in any case.
        """
        return []

    @abstractmethod
    def prepare(self, rank_map: RankMap, me: int, gathered: GatheredMetadata) -> None:
        """Allocate the new part in addition to the old one.

        Raises:
            DistributionError: A function of the program does not return valid owners.
            MemoryError: The memory is not sufficient.
        """

    @abstractmethod
    def plan(self, rank_map: RankMap, gathered: GatheredMetadata) -> TransferPlan:
        """Return the transfers of this resize; called after `prepare`."""

    def plan_checksum(self, plan: Any) -> int:
        """Return a checksum of the plan, which must be equal on all processes."""
        return hash(plan)

    @abstractmethod
    def estimate(self, rank_map: RankMap) -> int:
        """Return an estimate of the bytes that would be sent to another process.

        Called from any thread; must not communicate.
        """

    @abstractmethod
    def move(self, plan: Any, comm: MPI.Intracomm, tag: int) -> None:
        """Fill the new part; the old part stays unchanged.

        Args:
            plan: The result of `plan`.
            comm: Contains all processes of the resize.
            tag: The tag of the messages.
        """

    @abstractmethod
    def commit(self) -> None:
        """Replace the old part with the new one."""

    @abstractmethod
    def rollback(self) -> None:
        """Discard the new part; the old part has not changed."""

    @abstractmethod
    def save(self, out: ArrayWriter) -> None:
        """Write the part of this process, without MPI; only rank 0 writes data that all have.

        Raises:
            OSError: The file cannot be written.
        """

    @abstractmethod
    def restore(self, source: ArrayReader, rank: int, size: int) -> None:
        """Make the part of rank ``rank`` of ``size`` and fill it from a checkpoint.

        Reads only the data that this process will own. No MPI.

        Raises:
            CheckpointError: Data are missing or damaged.
            MemoryError: The memory is not sufficient.
        """


class Registry:
    """The registered entries, the same in the same order on every process."""

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
        """Return the descriptions of all entries."""
        return [entry.describe() for entry in self]

    @property
    def metadata_rounds(self) -> int:
        """Return the number of metadata exchanges that all plans need, 0 for fixed layouts."""
        return max((entry.metadata_rounds for entry in self), default=0)
