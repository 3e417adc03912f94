"""Make this host a node of a cluster: check the server, then get a certificate from it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from cryptography import x509

from pliant.protos.address import TcpAddress, parse_address
from pliant.protos.daemons.atomic_files import write_private
from pliant.protos.daemons.private_paths import open_private, read_private
from pliant.protos.identity import authority, keys
from pliant.protos.identity.authority import MAX_CLOCK_SKEW_S
from pliant.protos.identity.certificate_names import SERVER_DNS_NAME, Role
from pliant.protos.identity.certificates import (
    fingerprint,
    parse_certificates,
    read_identity,
    verify_chain,
)
from pliant.protos.identity.identity_errors import (
    CertificateError,
    CertificateTimeError,
    IdentityError,
    JoinError,
)
from pliant.protos.identity.node_files import (
    NodeIdentity,
    ServerAddresses,
    check_not_joined,
    create_node_identity,
    parse_server_addresses,
)
from pliant.protos.identity.trust_bundle import parse_bundle
from pliant.protos.node_joining.join_token import JoinToken
from pliant.protos.node_joining.messages import (
    MAX_LINE_BYTES,
    Greeting,
    JoinAnswer,
    JoinRefusal,
    JoinRequest,
    decode_answer,
    decode_greeting,
)
from pliant.protos.versions import OLDEST_READER, PROTOCOL

CONNECT_TIMEOUT_S = 10.0
#: For the whole exchange after the connection.
ANSWER_TIMEOUT_S = 30.0
#: A connection that breaks is tried again: a busy server closes connections that are too many.
ATTEMPTS = 4
PAUSE_S = 1.0
_DRAFT = "draft.json"


class _BrokenConnectionError(Exception):
    """The connection ended before the answer arrived; callers turn this into a `JoinError`."""


def join(
    token: JoinToken,
    directory: Path,
    *,
    address: str = "",
    clock: Callable[[], float] = time.time,
    pause_s: float = PAUSE_S,
) -> NodeIdentity:
    """Join the cluster of a token; store and return the identity of the new node.

    The secret of the token is sent only to a server that has proved to be the one of the token.
    The key of the node is made here and never leaves this host. If the answer of the server gets
    lost, the key is kept and used at the next attempt, because the server accepts a token that was
    used from the same key only.

    Args:
        token: the token that the administrator of the cluster made.
        directory: becomes the place of the node's identity; it must not exist.
        address: the address of the server, if it is not the one in the token.
        clock: returns seconds since the epoch.
        pause_s: seconds between attempts if the connection breaks.

    Raises:
        JoinError: the server cannot be reached, is not the one of the token, or refuses.
        CertificateTimeError: the clocks of this host and the server differ by more than a minute.
        StoredIdentityError: this host has joined already, or the answer of the server is wrong.
        UntrustedPathError: another account could change the directory.
        OSError: a file cannot be written.
    """
    check_not_joined(directory)
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(open_private(directory.parent, shared=True))
    draft = directory.with_name(f".{directory.name}.joining")
    server = _parse_server(address or token.address)
    key = _load_key(draft, token)
    for attempt in range(ATTEMPTS):
        try:
            answer = _ask(token, server, key, clock)
            break
        except _BrokenConnectionError as error:
            if attempt + 1 == ATTEMPTS:
                raise JoinError(str(error)) from None
            time.sleep(pause_s)
    identity = _identity(answer, key, server)
    create_node_identity(directory, identity)
    shutil.rmtree(draft, ignore_errors=True)
    return identity


def _parse_server(text: str) -> TcpAddress:
    try:
        address = parse_address(text)
    except ValueError as error:
        raise JoinError(f"address of the server: {error}") from None
    if not isinstance(address, TcpAddress) or not address.port:
        raise JoinError(f"address of the server: expected HOST:PORT, got {text}")
    return address


def _load_key(draft: Path, token: JoinToken) -> bytes:
    """Return the private key of an earlier attempt with this token, or make one and store it."""
    try:
        record = json.loads(read_private(draft / _DRAFT, max_bytes=MAX_LINE_BYTES))
        if record["token"] == token.id:
            key = str(record["key"]).encode("ascii")
            keys.parse_certificate_key(key)
            return key
    except FileNotFoundError:
        pass
    except (ValueError, TypeError, LookupError, IdentityError):
        pass  # damaged: it is made again
    if draft.is_dir() and not draft.is_symlink():
        shutil.rmtree(draft)
    draft.mkdir(mode=0o700)
    draft.chmod(0o700)  # the umask may have removed some of it
    text = keys.format_private_key(keys.create_certificate_key())
    write_private(draft / _DRAFT, json.dumps({"token": token.id, "key": text}).encode("ascii"))
    return text.encode("ascii")


def _ask(
    token: JoinToken, server: TcpAddress, key: bytes, clock: Callable[[], float]
) -> JoinAnswer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The certificate is checked against the fingerprint in the token, by `_check_server`.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with _connect(server) as plain:
        try:
            plain.settimeout(ANSWER_TIMEOUT_S)
            with context.wrap_socket(plain, server_hostname=SERVER_DNS_NAME) as stream:
                return _talk(stream, token, server, key, clock)
        except ssl.SSLEOFError:
            raise _broken(server) from None
        except ssl.SSLError as error:
            raise JoinError(
                f"{server} is not the port for joining nodes ({error.reason or error}); "
                "`pliant cluster token` on the server's host names it"
            ) from None
        except TimeoutError:
            raise JoinError(
                f"{server} does not answer within {ANSWER_TIMEOUT_S:.0f} s: is it the port for "
                "joining nodes?"
            ) from None
        except ConnectionError:
            raise _broken(server) from None


def _connect(server: TcpAddress) -> socket.socket:
    try:
        return socket.create_connection((server.host, server.port), CONNECT_TIMEOUT_S)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise JoinError(
            f"the server cannot be reached at {server}: {why.lower()}; check that it runs and that "
            "no firewall is between, or name another address with --address HOST:PORT"
        ) from None


def _broken(server: TcpAddress) -> _BrokenConnectionError:
    return _BrokenConnectionError(
        f"{server} closed the connection before it answered: it may be busy, or refuse this host "
        "for a minute after failed attempts; try again with the same token"
    )


def _talk(
    stream: ssl.SSLSocket,
    token: JoinToken,
    server: TcpAddress,
    key: bytes,
    clock: Callable[[], float],
) -> JoinAnswer:
    with stream.makefile("rb") as lines:
        greeting = decode_greeting(_read_line(lines, server))
        _check_server(stream, greeting, token, server, clock())
        request = authority.create_request(keys.parse_certificate_key(key))
        stream.sendall(JoinRequest(token.id, token.secret, request).encode())
        answer = decode_answer(_read_line(lines, server))
    if isinstance(answer, JoinRefusal):
        raise JoinError(f"the server at {server} refuses: {answer.message}")
    _check_answer(answer, greeting, key, clock())
    return answer


def _read_line(lines: BinaryIO, server: TcpAddress) -> bytes:
    line = lines.readline(MAX_LINE_BYTES + 1)
    if not line or (len(line) <= MAX_LINE_BYTES and not line.endswith(b"\n")):
        raise _broken(server)
    return line


def _check_server(
    stream: ssl.SSLSocket, greeting: Greeting, token: JoinToken, server: TcpAddress, now: float
) -> None:
    """Check that the other end of a connection is the server that a token names.

    Its certificate must be the one of this connection, and be signed below a root certificate
    whose fingerprint is in the token.

    Args:
        stream: the connection.
        greeting: the first message of the server, with its certificates and its time.
        token: the token with which this host joins.
        server: the address of the server, for messages.
        now: the time of this host, in seconds since the epoch.

    Raises:
        JoinError: the server is not that of the token.
        CertificateTimeError: a certificate is not valid now, or the clocks differ too much.
    """
    found = parse_bundle(greeting.roots)
    trusted = tuple(root for root in found if fingerprint(root) in token.fingerprints)
    if not trusted:
        raise JoinError(
            f"the server at {server} belongs to another cluster than the token: its root has the "
            f"fingerprint {fingerprint(found[0])}, the token names "
            f"{' or '.join(token.fingerprints)}. Copy the token again; if that does not help, "
            "another server may be intercepting the connection. Nothing secret was sent"
        )
    leaf = x509.load_der_x509_certificate(stream.getpeercert(binary_form=True) or b"")
    sent = parse_certificates(greeting.certificates)
    ahead = now - greeting.time
    try:
        if sent[0] != leaf:
            raise CertificateError("it is not the certificate of this connection")
        identity = verify_chain(sent, trusted, now=now)
        if identity.role is not Role.SERVER:
            raise CertificateError(f"the certificate of {identity.uri} is not that of a server")
    except CertificateTimeError as error:
        raise CertificateTimeError(f"{error}. {_describe_skew(ahead)}") from None
    except CertificateError as error:
        raise JoinError(
            f"the server at {server} did not prove that it is the one of the token ({error}). "
            "Another server may be intercepting the connection. Nothing secret was sent"
        ) from None
    if abs(ahead) > MAX_CLOCK_SKEW_S:
        raise CertificateTimeError(
            f"{_describe_skew(ahead)}, more than {MAX_CLOCK_SKEW_S:.0f} s: set the clocks of both "
            "with NTP"
        )


def _describe_skew(ahead: float) -> str:
    direction = "ahead of" if ahead > 0 else "behind"
    return f"the clock of this host is {abs(ahead):.0f} s {direction} that of the server"


def _check_answer(answer: JoinAnswer, greeting: Greeting, key: bytes, now: float) -> None:
    """Check the certificates and addresses in the server's answer before they are stored.

    Raises:
        JoinError: the answer is unusable.
    """
    try:
        chain, roots = parse_certificates(answer.certificates), parse_bundle(answer.roots)
        identity = verify_chain(chain, roots, now=now)
        verify_chain(parse_certificates(greeting.certificates), roots, now=now)
        keys.parse_order_public_key(answer.order_public_key)
        parse_server_addresses(list(answer.servers), answer.slots, [PROTOCOL, OLDEST_READER])
        own = keys.parse_certificate_key(key).public_key()
        is_own = identity.role is not Role.SERVER and identity.name == answer.node
        if not is_own or chain[0].public_key() != own:
            raise CertificateError(f"the certificate is that of {identity.uri}")
    except (IdentityError, ValueError) as error:
        raise JoinError(f"the server's answer is unusable: {error}") from None


def _identity(answer: JoinAnswer, key: bytes, server: TcpAddress) -> NodeIdentity:
    chain = parse_certificates(answer.certificates)
    return NodeIdentity(
        identity=read_identity(chain[0]),
        key=key,
        certificates=answer.certificates,
        roots=answer.roots,
        order_public_key=answer.order_public_key,
        server=ServerAddresses(
            _reachable_first(answer.servers, server), answer.slots, (PROTOCOL, OLDEST_READER)
        ),
    )


def _reachable_first(servers: tuple[str, ...], joined: TcpAddress) -> tuple[str, ...]:
    """Return the server's addresses for nodes; those on the host already reached come first."""
    ports = [
        address.port for each in servers if isinstance(address := parse_address(each), TcpAddress)
    ]
    first = [str(TcpAddress(joined.host, port)) for port in dict.fromkeys(ports)]
    return tuple(dict.fromkeys([*first, *servers]))
