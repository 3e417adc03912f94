"""Coordinators of many jobs in one process, which speak appkit's protocol but run no application.

A coordinator is the process of a job that talks to the server, its rank 0. Each line on stdin names
a file with the environment of a process of a job. For each job, the program opens a session with
the server over its own connection. The session accepts every resize offer (with the argument
``silent`` it never answers) and never reaches a safe point. If the server withdraws a resize after
it has ordered the ranks to carry it out, the session confirms this.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from pliant.protos import app_pb2, app_pb2_grpc


def hello(environment: dict[str, str]) -> app_pb2.AppReport:
    """Return the first message of the coordinator of a job, by which it registers."""
    return app_pb2.AppReport(
        hello=app_pb2.Hello(
            job=int(environment["PLIANT_JOB"]),
            run=int(environment["PLIANT_RUN"]),
            epoch=int(environment["PLIANT_EPOCH"]),
            token=Path(environment["PLIANT_TOKEN_FILE"]).read_bytes().strip(),
            role=app_pb2.ROLE_COORDINATOR,
            processors=map(int, environment["PLIANT_PROCESSORS"].split(",")),
            rendezvous="127.0.0.1:9",
        )
    )


def answer(order: app_pb2.AppOrder) -> app_pb2.AppReport | None:
    """Return the answer to a message of the server; None if the message needs none.

    Every resize offer is accepted. A withdrawal of a resize is confirmed.
    """
    match order.WhichOneof("body"):
        case "offer":
            order.offer.verb = app_pb2.VERB_ACCEPT
            return app_pb2.AppReport(answer=order.offer)
        case "withdraw":
            return app_pb2.AppReport(withdrawn=app_pb2.Withdrawn(resize=order.withdraw.resize))
        case "refused":
            raise SystemExit(f"refused: {order.refused.reason}")
    return None


async def session(environment: dict[str, str], silent: bool) -> None:
    """Act as the coordinator (the process that talks to the server) of a job until the job ends.

    Args:
        environment: the environment variables of a process of the job.
        silent: whether the coordinator leaves all messages of the server unanswered.
    """
    outbox: asyncio.Queue[app_pb2.AppReport] = asyncio.Queue()
    outbox.put_nowait(hello(environment))

    async def reports() -> AsyncIterator[app_pb2.AppReport]:
        while True:
            yield await outbox.get()

    address = environment["PLIANT_APPLICATION_ADDRESS"]
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        async for order in app_pb2_grpc.AppServiceStub(channel).Session(reports()):
            reply = None if silent else answer(order)
            if reply is not None:
                outbox.put_nowait(reply)


def read(path: str) -> dict[str, str]:
    """Return the environment variables in a file that a process wrote with ``env -0``."""
    pairs = Path(path).read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


async def main() -> None:
    """Act as the coordinators of many jobs, one for each line on stdin.

    Each line is the path of a file with the environment of a process of the job.
    """
    silent = sys.argv[1:] == ["silent"]
    sessions = [session(read(line.strip()), silent) for line in sys.stdin]
    await asyncio.gather(*sessions, return_exceptions=True)


asyncio.run(main())
