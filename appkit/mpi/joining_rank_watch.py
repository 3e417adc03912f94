"""Wait for operations with joining ranks, and stop waiting if one of these ranks dies.

MPI does not end an operation of which a rank has died. So in a growth the old ranks wait for
operations over the joined communicator by testing them, and look at an alarm in between. Rank 0
knows of a death, because the coordinator has a connection to each joining rank. It tells the other
old ranks by a message over the old communicator. Each of them then gives up its operation and
reports that in the next reduction over the old communicator, after which all of them roll the
growth back.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from pliant.appkit.appkit_errors import JoiningRankLost
from pliant.appkit.mpi import blocking_wait, tags
from pliant.appkit.serialization import decode, encode

#: Tests of an operation in a row before this process sleeps between two of them, and how long.
_EAGER_TESTS = 1000
_SLEEP_S = 50e-6

#: How often MPICH tries to begin a send over ofi before it returns; -1: for ever.
_ATTEMPTS, _MAX_ATTEMPTS = b"MPIR_CVAR_CH4_OFI_MAX_EAGAIN_RETRY", 1000
#: In the text of the error with which it then returns.
_NOT_BEGUN = "EAGAIN"

#: Operations that were given up. Ranks that are still alive may write into their buffers.
_given_up: list[MPI.Request] = []
_current: "JoinWatch | None" = None


class JoinWatch:
    """During a growth, lets rank 0 inform all old ranks that a joining rank has died.

    Old ranks are those that were in the job before.
    """

    def __init__(self, old: MPI.Intracomm, lost: Callable[[], str]) -> None:
        """Start watching; collective over the old ranks.

        Args:
            old: The communicator of the old ranks.
            lost: On rank 0, returns why a joining rank is lost, or an empty text.
        """
        self._old, self._lost = old, lost
        self._reason = ""
        self._signal = np.zeros(1, dtype=np.int8)
        self._received = old.Irecv(self._signal, 0, tags.DEATH) if old.rank != 0 else None

    def failure(self) -> str:
        """Return why a joining rank was lost; empty if this process knows of no loss."""
        if not self._reason:
            if self._received is None:
                self._reason = self._lost()
                if self._reason:
                    self._send_signal(1)
            elif self._received.Test() and self._signal[0]:
                self._reason = "a joining rank died"
        return self._reason

    def stop(self) -> None:
        """Stop watching; called once on each of the old ranks.

        Rank 0 sends the others a message, unless it has already reported a loss to them.
        """
        if self._received is not None:
            self._received.Wait()
        elif not self._reason:
            self._send_signal(0)

    def _send_signal(self, word: int) -> None:
        self._signal[0] = word
        sent = [
            self._old.Isend(self._signal, rank, tags.DEATH) for rank in range(1, self._old.size)
        ]
        MPI.Request.Waitall(sent)


@contextmanager
def watching(watch: JoinWatch) -> Iterator[None]:
    """Within this context, `wait` and the other functions of this module notice dead joining ranks.

    They raise `JoiningRankLost` as soon as ``watch`` knows that a joining rank has died. Without
    the context, they would wait for it.
    """
    global _current  # noqa: PLW0603 - data of every kind wait, and only the main thread moves them
    _current = watch
    try:
        yield
    finally:
        _current = None
        watch.stop()


def wait(requests: Sequence[MPI.Request], statuses: list[MPI.Status] | None = None) -> None:
    """Wait until ``requests`` on the joined communicator are complete.

    Raises:
        JoiningRankLost: A joining rank has died, and the operations were given up.
        MPI.Exception: An operation failed.
    """
    if _current is None:
        MPI.Request.Waitall(requests, statuses)
        return
    for _ in _until_done(requests, statuses):
        if reason := _current.failure():
            _given_up.extend(requests)
            raise JoiningRankLost(reason)


def send(
    comm: MPI.Intracomm, spec: Any, target: int, tag: int, begun: Sequence[MPI.Request] = ()
) -> MPI.Request:
    """Begin to send over the joined communicator, and return the request to wait for.

    If the target has just died, MPICH over ofi tries to connect to it for ever, within MPI_Isend.
    So MPICH is told to return after some attempts. That applies to this call only: otherwise a
    collective operation would fail when a rank is slow.

    Args:
        comm: The joined communicator.
        spec: The buffer, as for MPI_Isend.
        target: The rank in ``comm`` to send to.
        tag: The tag of the message.
        begun: Operations that are given up together with this one.

    Raises:
        JoiningRankLost: A joining rank has died.
        MPI.Exception: The transport failed.
    """
    attempts = blocking_wait.find(_ATTEMPTS) if _current is not None else None
    if _current is None or attempts is None:
        return comm.Isend(spec, target, tag)
    while True:
        before = attempts.get()
        attempts.set(_MAX_ATTEMPTS)
        try:
            return comm.Isend(spec, target, tag)
        except MPI.Exception as error:
            if _NOT_BEGUN not in error.Get_error_string():
                raise
        finally:
            attempts.set(before)
        if reason := _current.failure():
            _given_up.extend(begun)
            raise JoiningRankLost(reason)
        time.sleep(_SLEEP_S)


def wait_for_old_ranks(old: MPI.Intracomm) -> None:
    """On rank 0, wait until all old ranks have called this; the others only send a message.

    Old ranks are those that were in the job before the growth. Some may still be waiting for a
    joining rank that has died, so rank 0 keeps testing whether one has.
    """
    if _current is None:
        return
    here = np.zeros(1, dtype=np.int8)
    if old.rank != 0:
        old.Send(here, 0, tags.BACK)
        return
    others = range(1, old.size)
    places = [np.zeros(1, dtype=np.int8) for _ in others]
    requests = [old.Irecv(p, rank, tags.BACK) for p, rank in zip(places, others, strict=True)]
    for _ in _until_done(requests, None):
        _current.failure()


def _until_done(
    requests: Sequence[MPI.Request], statuses: list[MPI.Status] | None
) -> Iterator[None]:
    tests = 0
    while not MPI.Request.Testall(requests, statuses):
        yield
        tests += 1
        if tests > _EAGER_TESTS:
            time.sleep(_SLEEP_S)


# Collective operations over the joined communicator, as messages between rank 0 and the others.
# Nonblocking collectives of MPICH could be given up, too. But after that, an Iallreduce over the
# old communicator did not complete in the same process (measured with MPICH 5.0.2, ofi).


def bcast(comm: MPI.Intracomm, value: Any) -> Any:
    """Broadcast an object from rank 0 to all ranks, and return it; collective.

    Raises:
        JoiningRankLost: A joining rank has died, and the operations were given up.
        MPI.Exception: An operation failed.
    """
    if comm.rank != 0:
        return decode(_receive(comm, 0))[0]
    data = encode([value])
    _send(comm, data, range(1, comm.size))
    return value


def allgather(comm: MPI.Intracomm, value: Any) -> list[Any]:
    """Return the objects of all ranks, in rank order, on each of them; collective.

    Raises:
        JoiningRankLost: A joining rank has died, and the operations were given up.
        MPI.Exception: An operation failed.
    """
    every: list[Any] = []
    if comm.rank != 0:
        _send(comm, encode([value]), [0])
    else:
        every = [value, *(decode(_receive(comm, rank))[0] for rank in range(1, comm.size))]
    found: list[Any] = bcast(comm, every)
    return found


def minimum(comm: MPI.Intracomm, mine: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the elementwise minimum of ``mine`` over all ranks; collective.

    Raises:
        JoiningRankLost: A joining rank has died, and the operation was given up.
        MPI.Exception: The operation failed.
    """
    found = mine.copy()
    if comm.rank != 0:
        wait([send(comm, mine, 0, tags.JOINED)])
    else:
        parts = np.empty((comm.size - 1, mine.size), dtype=np.int64)
        wait([comm.Irecv(part, rank, tags.JOINED) for rank, part in enumerate(parts, start=1)])
        found = np.minimum(found, parts.min(axis=0, initial=np.iinfo(np.int64).max))
    if comm.rank != 0:
        wait([comm.Irecv(found, 0, tags.JOINED)])
    else:
        _send_all(comm, [found], range(1, comm.size))
    return found


def _send(comm: MPI.Intracomm, data: bytes, targets: Sequence[int]) -> None:
    length = np.array([len(data)], dtype=np.int64)
    _send_all(comm, [length, [data, MPI.BYTE]], targets)


def _send_all(comm: MPI.Intracomm, specs: Sequence[Any], targets: Sequence[int]) -> None:
    sent: list[MPI.Request] = []
    for spec in specs:
        for target in targets:
            sent.append(send(comm, spec, target, tags.JOINED, sent))
    wait(sent)


def _receive(comm: MPI.Intracomm, source: int) -> bytes:
    length = np.zeros(1, dtype=np.int64)
    wait([comm.Irecv(length, source, tags.JOINED)])
    data = bytearray(int(length[0]))
    wait([comm.Irecv([data, MPI.BYTE], source, tags.JOINED)])
    return bytes(data)
