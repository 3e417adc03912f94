"""TLS on a connection that asyncio has accepted as a plain socket.

`asyncio.start_server` would accept every connection. The listeners of the server limit the number
of connections before the handshake, so they accept the sockets themselves.
"""

from __future__ import annotations

import asyncio
import socket
import ssl


async def open_tls_stream(
    connection: socket.socket,
    context: ssl.SSLContext,
    *,
    limit: int,
    handshake_s: float,
    shutdown_s: float,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Perform the server's side of a TLS handshake on a socket; return its streams.

    After the handshake, closing the writer closes the socket. If the handshake fails, the caller
    closes the socket.

    Args:
        connection: an accepted, non-blocking socket.
        context: the server's certificate, and the requirements for the certificate of its peer.
        limit: bytes after which the reader stops reading; also the longest line.
        handshake_s: time for the handshake, in seconds.
        shutdown_s: time for the end of TLS when the connection is closed, in seconds.

    Raises:
        OSError: the handshake failed; `ssl.SSLError` and `TimeoutError` are subclasses.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol,
        connection,
        ssl=context,
        ssl_handshake_timeout=handshake_s,
        ssl_shutdown_timeout=shutdown_s,
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def failure_text(error: Exception, required: str) -> str:
    """Return a log text that says why a TLS connection failed.

    Args:
        error: the error that ended the connection.
        required: the requirements of TLS for the peer, such as ``TLS 1.3``.
    """
    if isinstance(error, TimeoutError):
        return "it was too slow"
    if isinstance(error, ssl.SSLError):
        return f"no {required} ({error.reason or error})"
    return str(error) or type(error).__name__
