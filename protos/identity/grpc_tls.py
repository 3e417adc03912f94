"""Make gRPC refuse versions of TLS below 1.3, for which gRPC for Python has no setting.

Certificates of a cluster have ECDSA keys. If the only suite of TLS 1.2 needs an RSA certificate, no
handshake of TLS 1.2 succeeds. The suites of TLS 1.3 do not depend on this variable. The record
docs/decisions/0010-identity-of-a-cluster.md shows what was measured.
"""

from __future__ import annotations

import os
import sys

VARIABLE = "GRPC_SSL_CIPHER_SUITES"
SUITE = "ECDHE-RSA-AES128-GCM-SHA256"


def require_tls_1_3() -> None:
    """Set the suites of this process. Call this before anything imports ``grpc``.

    Raises:
        RuntimeError: gRPC is loaded, and may have read the variable with another value.
    """
    if "grpc" in sys.modules and os.environ.get(VARIABLE) != SUITE:
        raise RuntimeError(f"{VARIABLE} must be set before grpc is imported")
    os.environ[VARIABLE] = SUITE
