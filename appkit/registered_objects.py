"""Everything that the program has registered, and its description."""

from dataclasses import dataclass, field

from pliant.appkit.data.constant_arrays import Constant
from pliant.appkit.data.registered_data import Description, Registry
from pliant.appkit.kinds.replicated_values import StateEntry
from pliant.appkit.mpi.derived_communicators import DerivedComm
from pliant.appkit.mpi.membership import Membership


@dataclass
class JobData:
    """The data and communicators that a program has registered, in order."""

    membership: Membership
    registry: Registry = field(default_factory=Registry)
    states: list[StateEntry] = field(default_factory=list)
    derived: list[DerivedComm] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    #: Whether there is a folder through which constants can be prefetched before a resize.
    can_prefetch: bool = False

    def freeze(self) -> None:
        """Make all arrays with ``constant=True`` read-only.

        Called when a loop begins and at each safe point.
        """
        for constant in self.constants:
            constant.freeze()

    def description(self) -> list[Description]:
        """Return the descriptions of all registered data, equal on all processes.

        A restart compares them with those in the checkpoint.
        """
        states: list[Description] = [["state", *entry.names()] for entry in self.states]
        return [*self.registry.description(), *states]

    def resize_description(self) -> list[Description]:
        """Return the descriptions of all data and derived communicators, equal on all processes.

        Joining ranks compare them with theirs. After a resize, all processes make the derived
        communicators again, which is collective: a process with fewer or other communicators would
        wait for ever. Checkpoints leave them out, so that an edited program may derive others.
        """
        derived: list[Description] = [["derive", comm.name] for comm in self.derived]
        return [*self.description(), *derived]
