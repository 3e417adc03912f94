"""A server of somebody else, which writes down all that it is sent: ``ADDRESS RECORD MARK [hold]``.

It answers each stream with a proof that it has made up, a Welcome of a generation far ahead, and an
order to make the file MARK; with ``hold`` it keeps streams open and says nothing.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from pliant.protos import app_pb2, node_pb2
from pliant.protos.hmac_handshake import NONCE, PROOF

GENERATION = 1_000_000
JOB = 900_000


class Impostor(grpc.GenericRpcHandler):
    """Serves every method."""

    def __init__(self, record: Path, mark: str, *, hold: bool) -> None:
        self._record, self._mark, self._hold = record, mark, hold
        self._lock = threading.Lock()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        method = str(details.method)

        def stream(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            self._note(method, "metadata", repr(context.invocation_metadata()))
            if self._hold:
                threading.Event().wait()
            context.send_initial_metadata(((NONCE, os.urandom(32)), (PROOF, os.urandom(32))))
            threading.Thread(target=self._hear, args=(method, messages), daemon=True).start()
            yield from self._orders(method)
            threading.Event().wait(5)

        return grpc.stream_stream_rpc_method_handler(stream, None, None)

    def _hear(self, method: str, messages: Iterator[bytes]) -> None:
        try:
            for message in messages:
                self._note(method, "message", message.hex())
        except grpc.RpcError:
            pass  # the client has hung up

    def _note(self, method: str, kind: str, text: str) -> None:
        with self._lock, self._record.open("a") as file:
            file.write(json.dumps([method, kind, text]) + "\n")

    def _orders(self, method: str) -> Iterator[bytes]:
        if "AppService" in method:
            yield app_pb2.AppOrder(
                welcome=app_pb2.AppWelcome(generation=GENERATION)
            ).SerializeToString()
            yield app_pb2.AppOrder(refused=app_pb2.AppRefused(reason="forged")).SerializeToString()
            return
        welcome = node_pb2.Welcome(generation=GENERATION, beat_interval_s=1.0, life="forged")
        yield node_pb2.NodeOrder(welcome=welcome).SerializeToString()
        start = node_pb2.StartWorld(
            world="forged",
            job=JOB,
            run=1,
            type="uni",
            world_size=1,
            ranks=[node_pb2.Placement(rank=0, processor=0)],
            processors=[0],
            argv=[b"/bin/touch", os.fsencode(self._mark)],
            directory=b"/",
            stdout=b"/dev/null",
            token=b"forged",
        )
        yield node_pb2.NodeOrder(start_world=start).SerializeToString()


def main(address: str, record: str, mark: str, *more: str) -> None:
    """Serve until killed."""
    server = grpc.server(ThreadPoolExecutor(64), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((Impostor(Path(record), mark, hold="hold" in more),))
    server.add_insecure_port(address)
    server.start()
    print("serving", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
