"""Messages that carry data, under way together: what came of each of them is looked at.

Both ends of a message plan it by themselves. Where a function of the program does not say the same
on all processes they plan different lengths: MPI has no words for a message that is too long, and
takes one that is too short.
"""

from typing import Any

from mpi4py import MPI

from pliant.appkit.errors import DistributionError
from pliant.appkit.mpi import death_watch

#: What makes both ends plan differently.
NOT_ALIKE = (
    "a function of the program that says where data belong (owner=, lengths=, grid=, weight=) does "
    "not return the same on all processes"
)


class Mail:
    """What one process sends and receives in one step of a move."""

    def __init__(self, comm: MPI.Intracomm, tag: int) -> None:
        """Begin with nothing; ``tag`` tells apart what is under way together."""
        self._comm, self._tag = comm, tag
        self._receives: list[MPI.Request] = []
        self._sends: list[MPI.Request] = []
        self._lengths: list[int] = []  # of what is received, in bytes

    def receive(self, spec: list[Any], source: int) -> None:
        """Begin to receive into a buffer of bytes: it, their number, their type."""
        self._receives.append(self._comm.Irecv(spec, source, self._tag))
        self._lengths.append(spec[1])

    def send(self, spec: list[Any], target: int) -> None:
        """Begin to send a buffer, which is to stay as it is until ``wait`` has returned."""
        begun = [*self._receives, *self._sends]
        self._sends.append(death_watch.send(self._comm, spec, target, self._tag, begun))

    def wait(self) -> None:
        """Wait until all is done.

        Raises:
            JoiningRankLost: a process that joins has died.
            DistributionError: more or fewer bytes came than are expected here.
            MPI.Exception: a transport failed.
        """
        statuses: list[MPI.Status] = []
        try:
            death_watch.wait([*self._receives, *self._sends], statuses)
        except MPI.Exception as fault:
            raise _real(fault, statuses) from fault
        for status, length in zip(statuses, self._lengths, strict=False):
            came = status.Get_elements(MPI.BYTE)
            if came != length:
                raise _differs(f"{came} bytes came where {length} belong")


def _real(fault: MPI.Exception, statuses: list[MPI.Status]) -> Exception:
    """The error that MPI says is in the statuses."""
    codes = [status.Get_error() for status in statuses]
    kinds = [MPI.Get_error_class(code) for code in codes]
    if fault.Get_error_class() != MPI.ERR_IN_STATUS:
        return fault
    if MPI.ERR_TRUNCATE in kinds:
        return _differs("more data came than belong here")
    for code, kind in zip(codes, kinds, strict=True):
        if kind not in (MPI.SUCCESS, MPI.ERR_PENDING):
            return MPI.Exception(code)
    return fault


def _differs(how: str) -> DistributionError:
    return DistributionError(f"{how}: {NOT_ALIKE}")
