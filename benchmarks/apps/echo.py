"""Echo each message of a gRPC stream, to measure the shortest time of a message and its answer."""

from __future__ import annotations

import queue
import sys
from collections.abc import Iterator

import grpc


def same(data: bytes) -> bytes:
    """Return the message unchanged, as gRPC's serializer: the messages are bytes already."""
    return data


def main(address: str) -> None:
    """Echo the messages of the server at ``address`` until it ends the stream."""
    outbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def replies() -> Iterator[bytes]:
        while True:
            yield outbox.get()

    with grpc.insecure_channel(address) as channel:
        for word in channel.stream_stream("/echo/Session", same, same)(replies()):
            outbox.put(word)


main(sys.argv[1])
