"""``job.derive``: communicators made from ``job.comm`` again after every resize."""

from collections.abc import Callable, Sequence

from mpi4py import MPI

from pliant.appkit.appkit_errors import NotJoined, RegistrationError
from pliant.appkit.mpi.membership import Membership

#: Gets the present ``job.comm`` and returns a communicator made from it; collective.
Derive = Callable[[MPI.Intracomm], MPI.Comm]


class DerivedComm:
    """A communicator that the program derives from ``job.comm``, as ``Job.derive`` returns it.

    The handle stays valid; after each resize, its ``comm`` is a new communicator.
    """

    def __init__(
        self, membership: Membership, make: Derive, others: "Sequence[DerivedComm]"
    ) -> None:
        """Store the function that makes the communicator; `rebuild` calls it.

        Args:
            membership: the membership of this process.
            make: the program's function.
            others: all derived communicators of the job.
        """
        self._membership = membership
        self._make = make
        self._others = others
        self._comm: MPI.Comm | None = None

    @property
    def name(self) -> str:
        """Return the name of the program's function; it must be the same on joining processes."""
        return str(getattr(self._make, "__qualname__", type(self._make).__qualname__))

    @property
    def comm(self) -> MPI.Comm:
        """Return the present communicator; ``COMM_NULL`` on a process that is not part of it.

        Raises:
            NotJoined: before the first loop, except inside ``init=``, ``once`` and ``derive``.
            StaleHandle: ``main`` has ended.
        """
        self._membership.communicator()
        if self._comm is None:
            raise NotJoined("the derived communicator is made when the job has been joined")
        return self._comm

    def rebuild(self) -> None:
        """Call the program's function with the present ``job.comm``, and store its communicator.

        Collective over the job.

        Raises:
            RegistrationError: The program's function did not return a new communicator.
        """
        raw = self._membership.raw
        assert raw is not None
        made = self._make(raw)
        if not isinstance(made, MPI.Comm):
            raise RegistrationError(
                f"job.derive: the function returned {made!r}: it must return a communicator, as "
                "lambda comm: comm.Dup() does"
            )
        foreign = [raw, MPI.COMM_WORLD, MPI.COMM_SELF, *(other._comm for other in self._others)]
        if made != MPI.COMM_NULL and made in foreign:
            raise RegistrationError(
                "job.derive: the function returned a communicator that it did not make, which "
                "would be freed at the next resize: return one of its own, as lambda comm: "
                "comm.Dup() does"
            )
        self._comm = made

    def free(self) -> None:
        """Free the communicator before a resize replaces it; collective over its processes."""
        comm, self._comm = self._comm, None
        if comm is not None and comm != MPI.COMM_NULL:
            comm.Free()
