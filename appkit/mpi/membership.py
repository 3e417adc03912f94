"""The membership of this process in the job: joining, member or left, with the communicator."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto

from mpi4py import MPI

from pliant.appkit.appkit_errors import JobLeave, NotJoined, StaleHandle
from pliant.appkit.mpi.disconnect import JobComm


class MembershipPhase(Enum):
    """The phases of a process in a job: joining, member, left, or ended (after ``main``)."""

    #: The process is joining, and its data have not arrived.
    JOINING = auto()
    MEMBER = auto()
    #: The process has left in a shrinkage.
    LEFT = auto()
    #: ``main`` has ended.
    ENDED = auto()


class Membership:
    """The membership of this process in its job, with the job's communicator and processors.

    A process is joining, is a member, or has left (``phase``).
    """

    def __init__(
        self, comm: MPI.Intracomm | None, epoch: int = 0, processors: tuple[int, ...] = ()
    ) -> None:
        #: None if the process has not joined yet.
        self.raw: MPI.Intracomm | None = None if comm is None else JobComm(comm)
        #: The epoch and the processors of the job in rank order, always replaced together.
        self.allocation: tuple[int, tuple[int, ...]] = (epoch, processors)
        self.phase = MembershipPhase.JOINING if comm is None else MembershipPhase.MEMBER
        self.rank = -1 if comm is None else comm.rank
        self.size = 0 if comm is None else comm.size
        #: Whether the first safe point has been reached.
        self.opened = False
        self._allowed = 0

    def check(self) -> None:
        """Check that this process is a member of the job, so that it may use the job's data.

        Raises:
            NotJoined: The data have not arrived.
            JobLeave: This process has left the job.
            StaleHandle: ``main`` has ended.
        """
        if self.phase is not MembershipPhase.MEMBER:
            self._refuse()

    def communicator(self) -> MPI.Intracomm:
        """Return the present communicator.

        Raises:
            NotJoined: The first loop has not begun (see `allow_communicator`).
            JobLeave: This process has left the job.
            StaleHandle: ``main`` has ended.
        """
        self.check()
        if not self.opened and not self._allowed:
            raise NotJoined(
                "job.comm is for the loop: before the first loop use it only inside init=, "
                "job.once(fn) and job.derive(fn), because a joining rank has no communicator there"
            )
        assert self.raw is not None
        return self.raw

    @contextmanager
    def allow_communicator(self) -> Iterator[None]:
        """Within this context, allow ``job.comm`` before the first loop."""
        self._allowed += 1
        try:
            yield
        finally:
            self._allowed -= 1

    def become(self, comm: MPI.Intracomm, epoch: int, processors: tuple[int, ...]) -> None:
        """Make this process a member of the job, or renew its membership after a resize.

        Args:
            comm: the new communicator of the job.
            epoch: the new version of the job's allocation, which rises by one with each resize.
            processors: the number of each rank's processor in the whole cluster.
        """
        self.raw, self.rank, self.size = JobComm(comm), comm.rank, comm.size
        self.allocation = (epoch, processors)
        self.phase = MembershipPhase.MEMBER

    def leave(self, phase: MembershipPhase) -> None:
        """End the membership of this process.

        ``phase`` is LEFT after a shrink or a suspension, and ENDED at the end of ``main``.
        """
        self.phase, self.raw = phase, None

    def _refuse(self) -> None:
        if self.phase is MembershipPhase.LEFT:
            raise JobLeave
        if self.phase is MembershipPhase.ENDED:
            raise StaleHandle("main() has ended: what belongs to the job is gone")
        raise NotJoined(
            "the data of the job arrive at the first safe point; "
            "guard what joining ranks must not do with `if not job.joining`"
        )
