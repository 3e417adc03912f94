"""Settings of TLS 1.3 for sockets of the standard library, from keys and certificates in memory."""

from __future__ import annotations

import os
import ssl


def server_context(key: bytes, certificates: bytes, roots: bytes) -> ssl.SSLContext:
    """Return the TLS settings of a port whose clients must have a certificate.

    Args:
        key: the private key of the server, in PEM form.
        certificates: the certificate of the server, then that of the issuing authority.
        roots: the root certificates under which clients' certificates must have been issued.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # nothing is resumed, so that each connection shows a certificate
    return _complete(context, key, certificates, roots)


def client_context(key: bytes, certificates: bytes, roots: bytes) -> ssl.SSLContext:
    """Return the TLS settings of a client that has a certificate and checks that of the server."""
    return _complete(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), key, certificates, roots)


def _complete(
    context: ssl.SSLContext, key: bytes, certificates: bytes, roots: bytes
) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=roots.decode("ascii"))
    # The ssl module reads keys from files only. This one is in memory and has no name.
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(key + certificates)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context
