"""Communicators that a program derives from ``job.comm``, made again after every resize."""

from collections.abc import Callable

from mpi4py import MPI

from pliant.appkit.errors import NotJoined
from pliant.appkit.membership import Membership

#: Gets the present ``job.comm`` and returns a communicator made from it; collective.
Derive = Callable[[MPI.Intracomm], MPI.Comm]


class DerivedComm:
    """A handle that stays valid; ``comm`` is the present communicator."""

    def __init__(self, membership: Membership, make: Derive) -> None:
        """Describe it; see ``Job.derive``."""
        self._membership = membership
        self._make = make
        self._comm: MPI.Comm | None = None

    @property
    def comm(self) -> MPI.Comm:
        """The present one; ``COMM_NULL`` on a process that it leaves out."""
        self._membership.communicator()
        if self._comm is None:
            raise NotJoined("the derived communicator is made when the job has been joined")
        return self._comm

    def rebuild(self) -> None:
        """Make it from the present communicator; collective."""
        assert self._membership.raw is not None
        self._comm = self._make(self._membership.raw)

    def free(self) -> None:
        """Free the old one; collective over its processes."""
        comm, self._comm = self._comm, None
        if comm is not None and comm != MPI.COMM_NULL:
            comm.Free()
