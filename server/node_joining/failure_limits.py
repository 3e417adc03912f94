"""Limits on the failed attempts of one peer to join."""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address, ip_network

from pliant.server.support.rate_limit import TokenBucket

#: Attempts that may fail at once, and how many more each second.
MAX_FAILURES = 10.0
FAILURES_PER_S = 1 / 6
_MAX_PEERS = 4096


def network_of(host: str) -> str:
    """Return the address or network that counts as one peer.

    Each IPv4 address counts as one peer. For IPv6, each /64 network counts as one peer, because a
    host may use any number of the addresses in its network.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ip_network((address, 64), strict=False))
    return str(address)


class FailureLimits:
    """Counts failed attempts to join the cluster, for each peer. Used by one thread."""

    def __init__(self, burst: float = MAX_FAILURES, rate: float = FAILURES_PER_S) -> None:
        self._burst, self._rate = burst, rate
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def is_exceeded(self, peer: str, now: float) -> bool:
        """Return whether a peer has failed too often to try again now.

        Args:
            peer: the peer's network, see `network_of`.
            now: seconds on the monotonic clock.
        """
        bucket = self._buckets.get(peer)
        return bucket is not None and bucket.tokens + self._rate * (now - bucket.at) < 1.0

    def count(self, peer: str, now: float) -> None:
        """Count one failed attempt of a peer to join.

        Args:
            peer: the peer's network, see `network_of`.
            now: seconds on the monotonic clock.
        """
        bucket = self._buckets.setdefault(peer, TokenBucket(self._burst, now))
        bucket.take(self._rate, self._burst, now)
        self._buckets.move_to_end(peer)
        if len(self._buckets) > _MAX_PEERS:
            self._buckets.popitem(last=False)
