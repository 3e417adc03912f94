"""Case 56: noise on the socket of nodes and applications; who speaks sense is served as before."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from random import Random

import pytest

from clusterkit.cluster import Cluster
from netkit.raw import connect
from testkit import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LOUD, HALF_OPEN = 60, 100
#: What a flood of nonsense may cost, bytes.
MOST_GROWTH = 64 << 20


def noises() -> list[bytes]:
    """Bytes of all kinds: no HTTP/2, the beginning of it, frames of any length and kind."""
    chance = Random(56)
    found = []
    for number in range(LOUD):
        rest = chance.randbytes(chance.choice([1, 9, 100, 5000]))
        found.append((b"", PREFACE, PREFACE + b"\0\0\0\4\0\0\0\0\0")[number % 3] + rest)
    return found


@pytest.mark.case(56)
def test_noise_on_the_socket_disturbs_nobody(cluster: Cluster) -> None:
    address = (cluster.run / "server.address").read_text().strip()
    server = cluster.daemon("server")
    before = server.memory_info().rss
    with ExitStack() as stack:
        for _ in range(HALF_OPEN):
            stack.enter_context(connect(address))
        for noise in noises():
            with connect(address) as sock:
                try:
                    sock.sendall(noise)
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(1 << 16):
                        pass
                except OSError:
                    pass  # it hung up on us
        job = cluster.client.submit("true", stdout="/dev/null")
        ended = cluster.wait_for(job, lambda job: job.final, "a job beside the noise")
        assert ended.state == "COMPLETED"
    states = {node.state for node in cluster.client.nodes()}
    assert states <= {"UP", "SUSPECT"}, "the lease has not run out"
    wait_until(lambda: {node.state for node in cluster.client.nodes()} == {"UP"})
    assert server.memory_info().rss - before < MOST_GROWTH
