"""A cable between two network devices that is slow and loses some: ``python -m netkit.wire``.

It is run in the namespace of both with their names, the delay in seconds and the share of frames
that are lost; it says ``connected`` when it is there, and goes on until it is killed.
"""

from __future__ import annotations

import random
import select
import socket
import sys
import time
from collections import deque

# Of linux/if_packet.h, which the socket module does not have. A frame goes with what is said about
# it, above all that nobody has filled in its checksum yet.
_SOL_PACKET, _VNET_HDR, _IGNORE_OUTGOING = 263, 15, 23
_ALL = 0x0003
_LONGEST = 1 << 17


def _open(device: str) -> socket.socket:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    end.setsockopt(_SOL_PACKET, _VNET_HDR, 1)
    end.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    end.bind((device, _ALL))
    return end


def _carry(one: socket.socket, other: socket.socket, delay_s: float, loss: float) -> None:
    chance = random.Random(1)
    across = {one: other, other: one}
    waiting: deque[tuple[float, socket.socket, bytes]] = deque()
    while True:
        blocking_waits = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for end in select.select([one, other], [], [], blocking_waits)[0]:
            frame = end.recv(_LONGEST)
            if chance.random() >= loss:
                waiting.append((time.monotonic() + delay_s, across[end], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, to, frame = waiting.popleft()
            to.send(frame)


def main(argv: list[str]) -> None:
    """Carry frames between two devices."""
    one, other, delay_s, loss = argv
    ends = _open(one), _open(other)
    print("connected", flush=True)
    _carry(*ends, float(delay_s), float(loss))


if __name__ == "__main__":
    main(sys.argv[1:])
