"""Make gRPC refuse TLS below version 1.3.

gRPC for Python has no setting for the lowest version, but a variable for the cipher suites of TLS
1.2. It is set to a suite that needs an RSA certificate. Certificates of a cluster have ECDSA keys,
so no handshake of TLS 1.2 can succeed. The suites of TLS 1.3 do not depend on this variable. The
record docs/decisions/0010-identity-of-a-cluster.md shows what was measured.
"""

from __future__ import annotations

import os
import sys

VARIABLE = "GRPC_SSL_CIPHER_SUITES"
SUITE = "ECDHE-RSA-AES128-GCM-SHA256"


def require_tls_1_3() -> None:
    """Set the variable by which gRPC chooses cipher suites, so that only TLS 1.3 works.

    Call this before anything imports ``grpc``.

    Raises:
        RuntimeError: gRPC is loaded, and may have read the variable with another value.
    """
    if "grpc" in sys.modules and os.environ.get(VARIABLE) != SUITE:
        raise RuntimeError(f"{VARIABLE} must be set before grpc is imported")
    os.environ[VARIABLE] = SUITE
