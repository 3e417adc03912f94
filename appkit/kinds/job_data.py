"""All data and communicators that follow a job through a resize, and their description."""

from dataclasses import dataclass, field

from pliant.appkit.data.constant import Constant
from pliant.appkit.data.entry import Description, Registry
from pliant.appkit.kinds.state import StateEntry
from pliant.appkit.mpi.derived import DerivedComm
from pliant.appkit.mpi.membership import Membership


@dataclass
class JobData:
    """All that follows the job."""

    membership: Membership
    registry: Registry = field(default_factory=Registry)
    states: list[StateEntry] = field(default_factory=list)
    derived: list[DerivedComm] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    #: There is a place over which constants can move before a resize.
    early: bool = False

    def freeze(self) -> None:
        """Constants do not change from here on."""
        for constant in self.constants:
            constant.freeze()

    def description(self) -> list[Description]:
        """The data: what must be the same on every process, and as in a checkpoint."""
        states: list[Description] = [["state", *entry.names()] for entry in self.states]
        return [*self.registry.description(), *states]

    def resize_description(self) -> list[Description]:
        """What must be the same on every process of a resize.

        Communicators are made anew after it, collectively: who made another one, or one less, would
        wait for ever. A checkpoint has none: a program that was edited may make others.
        """
        derived: list[Description] = [["derive", comm.name] for comm in self.derived]
        return [*self.description(), *derived]
