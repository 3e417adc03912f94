"""The gRPC options with which nodes and applications connect to the server."""

from __future__ import annotations

#: Seconds between pings on an open connection (the server allows no shorter interval), and how
#: long an answer may take.
KEEPALIVE_S, KEEPALIVE_TIMEOUT_S = 10.0, 5.0
#: The name in every server's certificate, which clients expect whichever address they connect to.
TLS_SERVER_NAME = "server.pliant"


def channel_options(
    keepalive_s: float = KEEPALIVE_S, timeout_s: float = KEEPALIVE_TIMEOUT_S
) -> list[tuple[str, int]]:
    """Return the options of a gRPC channel that has a connection of its own.

    Pings detect a host that has disappeared. They also detect a frozen process: its kernel still
    acknowledges data, but the process does not answer the ping.

    Args:
        keepalive_s: seconds between pings.
        timeout_s: seconds after which a ping without an answer ends the connection.
    """
    timeout_ms = int(timeout_s * 1000)
    return [
        ("grpc.keepalive_time_ms", int(keepalive_s * 1000)),
        ("grpc.keepalive_timeout_ms", timeout_ms),
        ("grpc.http2.ping_timeout_ms", timeout_ms),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.enable_http_proxy", 0),
        # Channels to the same target would share a connection. A target through a descriptor may
        # name another directory each time, and a stream that is opened again needs a new one.
        ("grpc.use_local_subchannel_pool", 1),
    ]


def tls_channel_options() -> list[tuple[str, int | str]]:
    """Return `channel_options` together with the name that the server's certificate must have."""
    return [*channel_options(), ("grpc.ssl_target_name_override", TLS_SERVER_NAME)]
