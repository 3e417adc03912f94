"""What follows the job through a resize, in order of registration."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from mpi4py import MPI

from pliant.appkit.errors import DuplicateName
from pliant.appkit.plan import Crossing, Plan

#: Kind, name and terms of one registered thing, in a form that JSON can carry.
Description = list[object]


class Entry(ABC):
    """One registered thing. A resize calls prepare, plan, move, then commit or rollback."""

    name: str

    @abstractmethod
    def describe(self) -> Description:
        """What must be equal on all processes."""

    @abstractmethod
    def prepare(self, crossing: Crossing, me: int) -> None:
        """Allocate the new part beside the old one.

        Raises:
            MemoryError: there is no room.
        """

    @abstractmethod
    def plan(self, crossing: Crossing) -> Plan:
        """Who sends what to whom."""

    @abstractmethod
    def move(self, plan: Plan, comm: MPI.Intracomm, tag: int) -> None:
        """Fill the new part, leave the old one as it is."""

    @abstractmethod
    def commit(self) -> None:
        """Let the new part take the place of the old one."""

    @abstractmethod
    def rollback(self) -> None:
        """Drop the new part."""


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
