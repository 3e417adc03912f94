"""Find out why no TLS connection to the server can be made, and describe the cause in one sentence.

gRPC names the cause only in a log line of its library, or not at all: with TLS 1.3 a client has
finished its part of the handshake when the server refuses its certificate.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from cryptography import x509

from pliant.protos.address import TcpAddress, parse_address
from pliant.protos.identity.certificate_names import SERVER_DNS_NAME
from pliant.protos.identity.certificates import check_time
from pliant.protos.identity.identity_errors import CertificateTimeError
from pliant.protos.identity.node_files import CERTIFICATE, KEY, ROOTS

_TIMEOUT_S = 3.0
#: Results of OpenSSL's verification.
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_AUTHORITY = (18, 19, 20, 21)
#: What a server answers to a certificate, by a part of the name of the alert.
_ALERTS = {
    "CERTIFICATE_REQUIRED": "it wants a certificate",
    "CERTIFICATE_EXPIRED": "it says that the certificate of this node has expired",
    "UNKNOWN_CA": "it does not trust the authority that issued the certificate of this node",
    "BAD_CERTIFICATE": "it says that the certificate of this node is bad",
    "UNSUPPORTED_CERTIFICATE": "it does not take the certificate of this node for a client",
    "CERTIFICATE_UNKNOWN": "it does not accept the certificate of this node",
}


def diagnose(address: str, directory: Path, now: float) -> str:
    """Try one TLS connection to a server; return why it fails, or empty if it succeeds.

    Args:
        address: HOST:PORT of the server.
        directory: the directory with the identity of this node.
        now: the present time, in seconds since the epoch.
    """
    try:
        with _connect(address) as plain:
            return _handshake(plain, _context(directory))
    except ssl.SSLCertVerificationError as error:
        return _describe_verification(address, error, now)
    except ssl.SSLError as error:
        return _describe_alert(error)
    except (TimeoutError, ConnectionResetError):
        return "it does not complete the TLS handshake"
    except OSError as error:
        return error.strerror or str(error)


def _connect(address: str) -> socket.socket:
    parsed = parse_address(address)
    if not isinstance(parsed, TcpAddress):
        raise OSError(f"expected HOST:PORT, got {address}")
    return socket.create_connection((parsed.host, parsed.port), _TIMEOUT_S)


def _context(directory: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(directory / ROOTS)
    context.load_cert_chain(directory / CERTIFICATE, directory / KEY)
    return context


def _handshake(plain: socket.socket, context: ssl.SSLContext) -> str:
    with context.wrap_socket(plain, server_hostname=SERVER_DNS_NAME) as connection:
        # The first frame of HTTP/2, an alert of TLS, or the end of the connection.
        if connection.recv(1):
            return ""
    return (
        "the server does not accept the certificate of this node: it is of another cluster, or the "
        "clock of one of the two hosts is wrong"
    )


def _describe_verification(address: str, error: ssl.SSLCertVerificationError, now: float) -> str:
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return (
            "what answers there has a certificate of another authority: it is not the server of "
            "this cluster, and nothing was sent to it"
        )
    if error.verify_code in (_NOT_YET_VALID, _EXPIRED):
        try:
            check_time(_certificate_of(address), "the certificate of the server", now)
        except CertificateTimeError as skew:
            return str(skew)
        except (OSError, ValueError):
            pass  # it does not answer again: the words of OpenSSL have to do
    return f"its certificate is not valid: {error.verify_message}"


def _describe_alert(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    for alert, text in _ALERTS.items():
        if alert in reason:
            return f"the server refuses this node: {text}"
    return f"it does not speak TLS 1.3 as a server of Pliant does ({reason or error})"


def _certificate_of(address: str) -> x509.Certificate:
    """Return the certificate that a server presents, without verifying it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        _connect(address) as plain,
        context.wrap_socket(plain, server_hostname=SERVER_DNS_NAME) as connection,
    ):
        return x509.load_der_x509_certificate(connection.getpeercert(binary_form=True) or b"")
