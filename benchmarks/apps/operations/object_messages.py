"""Point-to-point communication of pickled objects."""

from __future__ import annotations

from pathlib import Path

from listing import check, operation
from messages import GROUP, attach_buffer, ring
from mpi4py import MPI


@operation(
    GROUP, "Comm.send", "Comm.bsend", "Comm.ssend", "Comm.recv", "Comm.sendrecv", "Comm.irecv"
)
def objects(comm: MPI.Intracomm, _: Path) -> None:
    """Exchange pickled objects, blocking."""
    after, before = ring(comm)
    attach_buffer(1000)
    for send in (comm.send, comm.bsend, comm.ssend):
        receive = comm.irecv(source=before, tag=40)
        send({"from": comm.rank}, after, 40)
        check(receive.wait() == {"from": before})
    MPI.Detach_buffer()
    request = comm.isend("text", after, 41)
    check(comm.recv(source=before, tag=41) == "text")
    request.wait()
    check(comm.sendrecv(comm.rank, after, 42, source=before, recvtag=42) == before)


@operation(
    GROUP,
    "Comm.isend",
    "Comm.ibsend",
    "Comm.issend",
    "Request.wait",
    "Request.test",
    "Request.get_status",
    "Request.waitany",
    "Request.testany",
    "Request.get_status_any",
    "Request.waitall",
    "Request.testall",
    "Request.get_status_all",
    "Request.waitsome",
    "Request.testsome",
    "Request.get_status_some",
    "Request.cancel",
)
def object_requests(comm: MPI.Intracomm, _: Path) -> None:
    """Exchange pickled objects, nonblocking, and wait for them in every way."""
    after, before = ring(comm)
    attach_buffer(1000)
    for send in (comm.isend, comm.ibsend, comm.issend):
        receive = comm.irecv(source=before, tag=43)
        request = send([comm.rank], after, 43)
        check(receive.wait() == [before])
        while not (request.get_status() and request.test()[0]):
            pass
    MPI.Detach_buffer()

    def pair() -> list[MPI.Request]:
        return [comm.irecv(source=before, tag=44), comm.isend(1, after, 44)]

    requests = pair()
    while not MPI.Request.get_status_any(requests)[1]:
        pass
    MPI.Request.waitany(requests)
    while not MPI.Request.testany(requests)[1]:
        pass
    requests = pair()
    while not MPI.Request.get_status_all(requests):
        pass
    check(MPI.Request.waitall(requests)[0] == 1)
    requests = pair()
    while not MPI.Request.testall(requests)[0]:
        pass
    requests = pair()
    MPI.Request.get_status_some(requests)
    done = len(MPI.Request.waitsome(requests)[0] or [])
    while done < len(requests):
        done += len(MPI.Request.testsome(requests)[0] or [])
    request = comm.irecv(source=comm.rank, tag=45)
    request.cancel()
    request.Wait()


@operation(
    GROUP,
    "Comm.probe",
    "Comm.iprobe",
    "Comm.mprobe",
    "Comm.improbe",
    "Message.recv",
    "Message.irecv",
    "Message.probe",
    "Message.iprobe",
)
def object_probe(comm: MPI.Intracomm, _: Path) -> None:
    """Probe for pickled objects."""
    after, before = ring(comm)
    for tag in (46, 47, 48, 49):
        request = comm.isend(tag, after, tag)
        comm.probe(before, tag)
        check(comm.iprobe(before, tag))
        if tag == 46:
            message = comm.mprobe(before, tag)
        elif tag == 47:
            message = MPI.Message.probe(comm, before, tag)
        elif tag == 48:
            message = comm.improbe(before, tag)
        else:
            message = MPI.Message.iprobe(comm, before, tag)
        assert message is not None
        check((message.recv() if tag % 2 else message.irecv().wait()) == tag)
        request.wait()
