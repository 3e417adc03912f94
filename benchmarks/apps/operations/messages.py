"""Point-to-point communication: each rank sends to the next and receives from the previous."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from listing import check, operation
from mpi4py import MPI

GROUP = "Point to point"
#: Elements of a large message: more than MPICH sends eagerly.
LARGE = 100_000


def ring(comm: MPI.Intracomm) -> tuple[int, int]:
    """Return the ranks after and before this one."""
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def buffers(comm: MPI.Intracomm, count: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the buffer to send, the buffer to receive into, and the values that should arrive."""
    before = (comm.rank - 1) % comm.size
    return np.full(count, comm.rank + 1.0), np.zeros(count), np.full(count, before + 1.0)


def attach_buffer(nbytes: int) -> None:
    """Attach a buffer for up to four buffered sends, of ``nbytes`` bytes in total."""
    MPI.Attach_buffer(bytearray(nbytes + 4 * MPI.BSEND_OVERHEAD))


def _blocking(name: str, count: int) -> None:
    """Register an operation that sends a message by the method ``name`` to the next rank.

    The receiver has posted its receive before, because a ready send requires this.

    Args:
        name: a method of `MPI.Comm`, such as ``Send``, ``Ssend`` or ``Bsend``.
        count: the number of elements of the message.
    """

    @operation(GROUP, f"Comm.{name}", *(["Comm.Irecv", "Request.Wait"] if name == "Send" else []))
    def run(comm: MPI.Intracomm, _: Path) -> None:
        after, before = ring(comm)
        out, got, expected = buffers(comm, count)
        request = comm.Irecv(got, before, 1)
        comm.Barrier()  # Rsend needs the receive to be posted
        if name == "Bsend":
            attach_buffer(out.nbytes)
        getattr(comm, name)(out, after, 1)
        request.Wait()
        if name == "Bsend":
            MPI.Detach_buffer()
        check((got == expected).all())


for _name in ("Send", "Bsend", "Ssend", "Rsend"):
    _blocking(_name, LARGE if _name == "Send" else 8)


def _nonblocking(name: str) -> None:
    @operation(GROUP, f"Comm.{name}")
    def run(comm: MPI.Intracomm, _: Path) -> None:
        after, before = ring(comm)
        out, got, expected = buffers(comm, LARGE)
        receive = comm.Irecv(got, before, 2)
        comm.Barrier()
        if name == "Ibsend":
            attach_buffer(out.nbytes)
        getattr(comm, name)(out, after, 2).Wait()
        receive.Wait()
        if name == "Ibsend":
            MPI.Detach_buffer()
        check((got == expected).all())


for _name in ("Isend", "Ibsend", "Issend", "Irsend"):
    _nonblocking(_name)


@operation(GROUP, "Comm.Recv", "Status.Get_source", "Status.Get_tag", "Status.Get_count")
def recv_any(comm: MPI.Intracomm, _: Path) -> None:
    """Receive from any source with any tag."""
    after, before = ring(comm)
    out, got, expected = buffers(comm)
    request = comm.Isend(out, after, 3)
    status = MPI.Status()
    comm.Recv(got, MPI.ANY_SOURCE, MPI.ANY_TAG, status)
    request.Wait()
    check((got == expected).all())
    check((status.Get_source(), status.Get_tag()) == (before, 3))
    check(status.Get_count(MPI.DOUBLE) == got.size)


@operation(GROUP, "Comm.Sendrecv", "Comm.Sendrecv_replace", "Comm.Isendrecv")
def sendrecv(comm: MPI.Intracomm, _: Path) -> None:
    """Send and receive in one call."""
    after, before = ring(comm)
    out, got, expected = buffers(comm)
    comm.Sendrecv(out, after, 4, got, before, 4)
    check((got == expected).all())
    got[:] = 0
    comm.Isendrecv(out, after, 5, got, before, 5).Wait()
    check((got == expected).all())
    comm.Sendrecv_replace(out, after, 6, before, 6)
    check((out == expected).all())


@operation(GROUP, "Comm.Isendrecv_replace")
def isendrecv_replace(comm: MPI.Intracomm, _: Path) -> None:
    """Send from and receive into the same buffer by a nonblocking call."""
    after, before = ring(comm)
    out, _got, expected = buffers(comm)
    comm.Isendrecv_replace(out, after, 7, before, 7).Wait()
    check((out == expected).all())


@operation(GROUP, "Comm.Probe", "Comm.Iprobe")
def probe(comm: MPI.Intracomm, _: Path) -> None:
    """Probe for a message, then receive it."""
    after, before = ring(comm)
    out, got, expected = buffers(comm)
    request = comm.Isend(out, after, 8)
    status = MPI.Status()
    comm.Probe(before, 8, status)
    check(status.Get_count(MPI.DOUBLE) == got.size)
    check(comm.Iprobe(before, 8))
    comm.Recv(got, before, 8)
    request.Wait()
    check((got == expected).all())


@operation(
    GROUP,
    "Comm.Mprobe",
    "Comm.Improbe",
    "Message.Recv",
    "Message.Irecv",
    "Message.Probe",
    "Message.Iprobe",
)
def mprobe(comm: MPI.Intracomm, _: Path) -> None:
    """Match a message by a matched probe, then receive it."""
    after, before = ring(comm)
    out, got, expected = buffers(comm)
    for tag in (9, 10, 11, 12):
        request = comm.Isend(out, after, tag)
        got[:] = 0
        message = None
        if tag == 9:
            message = comm.Mprobe(before, tag)
        elif tag == 10:
            message = MPI.Message.Probe(comm, before, tag)
        while message is None:
            look = comm.Improbe if tag == 11 else lambda *where: MPI.Message.Iprobe(comm, *where)
            message = look(before, tag)
        if tag % 2:
            message.Recv(got)
        else:
            message.Irecv(got).Wait()
        request.Wait()
        check((got == expected).all())


@operation(
    GROUP,
    "Comm.Send_init",
    "Comm.Recv_init",
    "Comm.Ssend_init",
    "Comm.Rsend_init",
    "Comm.Bsend_init",
    "Prequest.Start",
    "Prequest.Startall",
)
def persistent(comm: MPI.Intracomm, _: Path) -> None:
    """Start persistent requests of each kind of send twice."""
    after, before = ring(comm)
    out, got, expected = buffers(comm)
    receive = comm.Recv_init(got, before, 13)
    attach_buffer(2 * (out.nbytes + MPI.BSEND_OVERHEAD))
    for make in (comm.Send_init, comm.Ssend_init, comm.Rsend_init, comm.Bsend_init):
        send = make(out, after, 13)
        for _round in range(2):
            got[:] = 0
            receive.Start()
            comm.Barrier()
            MPI.Prequest.Startall([send])
            MPI.Request.Waitall([send, receive])
            check((got == expected).all())
        send.Free()
    receive.Free()
    MPI.Detach_buffer()


@operation(
    GROUP,
    "Comm.Psend_init",
    "Comm.Precv_init",
    "Prequest.Pready",
    "Prequest.Pready_range",
    "Prequest.Pready_list",
    "Prequest.Parrived",
)
def partitioned(comm: MPI.Intracomm, _: Path) -> None:
    """Send one message in four partitions (MPI 4 partitioned communication)."""
    after, before = ring(comm)
    out, got, expected = buffers(comm)
    send = comm.Psend_init(out, 4, after, 14)
    receive = comm.Precv_init(got, 4, before, 14)
    for _round in range(2):
        got[:] = 0
        receive.Start()
        send.Start()
        send.Pready(0)
        send.Pready_range(1, 2)
        send.Pready_list([3])
        while not receive.Parrived(3):
            pass
        send.Wait()
        receive.Wait()
        check((got == expected).all())
    send.Free()
    receive.Free()


@operation(
    GROUP,
    "Request.Test",
    "Request.Get_status",
    "Request.Waitany",
    "Request.Testany",
    "Request.Get_status_any",
    "Request.Waitall",
    "Request.Testall",
    "Request.Get_status_all",
    "Request.Waitsome",
    "Request.Testsome",
    "Request.Get_status_some",
)
def completion(comm: MPI.Intracomm, _: Path) -> None:
    """Complete nonblocking requests by each MPI function that waits for or tests them."""
    after, before = ring(comm)
    out, _got, expected = buffers(comm)

    def exchange() -> tuple[list[MPI.Request], list[np.ndarray]]:
        places = [np.zeros_like(out) for _ in range(3)]
        receives = [comm.Irecv(place, before, 20 + tag) for tag, place in enumerate(places)]
        sends = [comm.Isend(out, after, 20 + tag) for tag in range(3)]
        return [*receives, *sends], places

    requests, places = exchange()
    for request in requests:
        while not (request.Get_status() and request.Test()):
            pass
    check(all((place == expected).all() for place in places))
    requests, places = exchange()
    while not MPI.Request.Get_status_any(requests)[1]:
        pass
    check(MPI.Request.Waitany(requests) != MPI.UNDEFINED)
    while not MPI.Request.Testany(requests)[1]:
        pass
    MPI.Request.Waitall(requests)
    check(all((place == expected).all() for place in places))
    requests, places = exchange()
    while not (MPI.Request.Get_status_all(requests) and MPI.Request.Testall(requests)):
        pass
    check(all((place == expected).all() for place in places))
    requests, places = exchange()
    done = 0
    while done < len(requests):
        MPI.Request.Get_status_some(requests)
        some = MPI.Request.Testsome(requests) if done else MPI.Request.Waitsome(requests)
        done += len(some or [])
    check(all((place == expected).all() for place in places))


@operation(GROUP, "Request.Cancel", "Request.Free", "Status.Is_cancelled")
def cancel(comm: MPI.Intracomm, _: Path) -> None:
    """Cancel a receive for which nothing is sent, and free a request that completes."""
    request = comm.Irecv(np.zeros(1), comm.rank, 30)
    request.Cancel()
    status = MPI.Status()
    request.Wait(status)
    check(status.Is_cancelled())
    out, got, expected = buffers(comm)
    after, before = ring(comm)
    receive = comm.Irecv(got, before, 31)
    comm.Isend(out, after, 31).Free()
    receive.Wait()
    check((got == expected).all())
    comm.Barrier()


@operation(
    GROUP, "Comm.Attach_buffer", "Comm.Detach_buffer", "Comm.Flush_buffer", "Comm.Iflush_buffer"
)
def communicator_buffer(comm: MPI.Intracomm, _: Path) -> None:
    """Make a buffered send from a buffer that is attached to one communicator only (MPI 4.1)."""
    after, before = ring(comm)
    out, got, expected = buffers(comm)
    comm.Attach_buffer(bytearray(out.nbytes + 4 * MPI.BSEND_OVERHEAD))
    comm.Bsend(out, after, 32)
    comm.Recv(got, before, 32)
    comm.Flush_buffer()
    comm.Iflush_buffer().Wait()
    comm.Detach_buffer()
    check((got == expected).all())
