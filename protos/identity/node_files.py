"""The files of a node's identity: made by ``pliant node join``, renewed by the controller.

All files are in one directory of mode 0700. A renewal replaces several of them together (see
`stored_files`), so that a node that crashes has either the old identity or the new one.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from pliant.protos.address import TcpAddress, parse_address
from pliant.protos.daemons.atomic_files import sync_folder, write_private
from pliant.protos.daemons.private_paths import open_private
from pliant.protos.identity import keys
from pliant.protos.identity.certificate_names import Identity, Role
from pliant.protos.identity.certificates import (
    check_time,
    format_certificates,
    parse_certificates,
    read_identity,
    verify_chain,
)
from pliant.protos.identity.identity_errors import (
    CertificateError,
    CertificateTimeError,
    IdentityError,
    StoredIdentityError,
)
from pliant.protos.identity.stored_files import LOCK, lock_files, read_files, replace_files
from pliant.protos.identity.trust_bundle import Bundle, parse_bundle

#: Its name in the state directory of the node.
DIRECTORY = "node-identity"
KEY = "node.key"
#: The node's certificate, followed by that of the issuing authority.
CERTIFICATE = "node.pem"
#: The roots that the node trusts.
ROOTS = "roots.pem"
#: With it, the node verifies launch orders.
ORDER_PUBLIC_KEY = "order.pub"
#: Addresses of the server, and what the administrator allows.
SERVER = "server.json"
_FILES = (KEY, CERTIFICATE, ROOTS, ORDER_PUBLIC_KEY, SERVER)
_MAX_SERVERS = 64
_REMEDY = "restore it from a copy, or remove the directory and join again"


@dataclass(frozen=True, slots=True)
class ServerAddresses:
    """The data that a node got when it joined: server addresses, limit of slots, and protocol."""

    #: Where the server listens for nodes, as HOST:PORT. The node tries them in this order.
    servers: tuple[str, ...]
    #: The most slots that the node may offer; None for any number.
    slots: int | None
    #: The protocol that the server used, and the oldest that could read it.
    protocol: tuple[int, int]

    def format(self) -> bytes:
        """Return the content of the file that stores these values."""
        record = {
            "servers": list(self.servers),
            "slots": self.slots,
            "protocol": list(self.protocol),
        }
        return json.dumps(record, indent=1).encode("ascii") + b"\n"


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The identity of a node. Keys and certificates are in PEM form, as gRPC takes them."""

    identity: Identity
    #: The private key of the certificate.
    key: bytes = field(repr=False)
    #: The certificate of the node and that of the issuing authority.
    certificates: bytes
    roots: bytes
    order_public_key: bytes
    server: ServerAddresses

    @property
    def servers(self) -> tuple[str, ...]:
        """Return the addresses at which nodes reach the server, as HOST:PORT."""
        return self.server.servers

    @property
    def slots(self) -> int | None:
        """Return how many slots (processors) the node may offer at most; None for no limit."""
        return self.server.slots

    @property
    def chain(self) -> tuple[x509.Certificate, ...]:
        """Return the certificate chain: of the node, and of the authority that issued it."""
        return parse_certificates(self.certificates)

    @property
    def bundle(self) -> Bundle:
        """Return the roots that the node trusts."""
        return parse_bundle(self.roots)

    def check_time(self, now: float) -> None:
        """Check that the node can use its certificate now.

        Raises:
            CertificateTimeError: the certificate is not valid yet, or has expired.
        """
        (certificate, *_) = self.chain
        try:
            check_time(certificate, f"the certificate of node {self.identity.name}", now)
        except CertificateTimeError as error:
            raise CertificateTimeError(
                f"{error}; an expired certificate is replaced by joining again: ask the "
                f"administrator for `pliant cluster token --node {self.identity.name}`, then run "
                "`pliant node leave` and `pliant node join TOKEN`"
            ) from None


def create_node_identity(directory: Path, identity: NodeIdentity) -> None:
    """Write the identity of a node that has joined.

    Args:
        directory: the directory to create for it; it must not exist.
        identity: the identity. It is read back before the directory gets its name.

    Raises:
        StoredIdentityError: there is an identity, or its parts do not belong together.
        OSError: the files cannot be written.
    """
    check_not_joined(directory)
    draft = directory.with_name(f".{directory.name}.new")
    if draft.is_dir() and not draft.is_symlink():
        shutil.rmtree(draft)  # what a killed join left; nobody has used it
    draft.mkdir(mode=0o700)
    draft.chmod(0o700)  # the umask may have removed some of it
    try:
        for name, content in {LOCK: b"", **_contents(identity)}.items():
            write_private(draft / name, content)
        load_node_identity(draft, role=identity.identity.role)
        draft.rename(directory)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    sync_folder(directory.parent)


def check_not_joined(directory: Path) -> None:
    """Check that a directory does not exist, so that no node's identity is overwritten.

    Raises:
        StoredIdentityError: an identity or another file exists at this path.
    """
    if directory.is_symlink() or directory.exists():
        raise StoredIdentityError(
            f"this node has joined a cluster already ({directory}): see it with `pliant node "
            "show`; to join again, first run `pliant node leave`"
        )


def load_node_identity(directory: Path, *, role: Role | None = Role.NODE) -> NodeIdentity:
    """Read the identity of this node, and check that its parts belong together.

    Whether the certificate is valid now is not checked: see `NodeIdentity.check_time`.

    Args:
        directory: the directory of the files.
        role: the role that the identity must have, because a login agent stores its identity in
            the same form; None for any role.

    Raises:
        StoredIdentityError: a file is missing or damaged, or does not belong to the others.
        UntrustedPathError: another account could read or change a file.
        OSError: a file cannot be read. FileNotFoundError means that the node has not joined.
    """
    _check_directory(directory)
    with lock_files(directory):
        return _parse(directory, _read_files(directory), role)


def replace_certificate(
    directory: Path,
    key: bytes,
    chain: Sequence[x509.Certificate],
    roots: Sequence[x509.Certificate],
    *,
    now: float,
) -> NodeIdentity:
    """Replace key, certificate and trusted roots of this node together; return the new identity.

    Args:
        directory: the directory of the node's identity.
        key: the private key of the new certificate, in PEM form; it may be the old one.
        chain: the new certificate, then that of the issuing authority.
        roots: the roots that the node trusts from now on.
        now: the present time, in seconds since the epoch.

    Raises:
        CertificateError: the new certificate was not issued under one of these roots, is not valid
            at present, or has another name.
        StoredIdentityError: the key does not belong to the new certificate.
        UntrustedPathError, OSError: the files cannot be used.
    """
    return _replace(
        directory,
        {
            KEY: key,
            CERTIFICATE: format_certificates(chain).encode("ascii"),
            ROOTS: format_certificates(roots).encode("ascii"),
        },
        now,
    )


def replace_roots(
    directory: Path, roots: Sequence[x509.Certificate], *, now: float
) -> NodeIdentity:
    """Replace the roots that this node trusts, and return the node's new identity.

    Raises:
        CertificateError: the node's own certificate was issued under an old root, and would not be
            valid with the new ones.
        StoredIdentityError, UntrustedPathError, OSError: the files cannot be used.
    """
    return _replace(directory, {ROOTS: format_certificates(roots).encode("ascii")}, now)


def _replace(directory: Path, changes: Mapping[str, bytes], now: float) -> NodeIdentity:
    _check_directory(directory)
    with lock_files(directory):
        current = _read_files(directory)
        before = _parse(directory, current, role=None)
        after = _parse(directory, {**current, **changes}, role=None)
        if after.identity != before.identity:
            raise CertificateError(
                f"the new certificate is of {after.identity.uri}, not of {before.identity.uri}"
            )
        verify_chain(after.chain, after.bundle, now=now)
        replace_files(directory, changes)
    return after


def _contents(identity: NodeIdentity) -> dict[str, bytes]:
    return {
        ROOTS: identity.roots,
        ORDER_PUBLIC_KEY: identity.order_public_key,
        SERVER: identity.server.format(),
        CERTIFICATE: identity.certificates,
        KEY: identity.key,
    }


def _load(directory: Path) -> NodeIdentity:
    return _parse(directory, _read_files(directory))


def _check_directory(directory: Path) -> None:
    try:
        os.close(open_private(directory))
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT,
            "this node has not joined a cluster: run `pliant node join TOKEN`",
            str(directory),
        ) from None


def _read_files(directory: Path) -> dict[str, bytes]:
    found = read_files(directory, _FILES)
    for name in _FILES:
        if name not in found:
            raise StoredIdentityError(f"{directory / name} is missing: {_REMEDY}")
    return found


def _parse(
    directory: Path, contents: Mapping[str, bytes], role: Role | None = Role.NODE
) -> NodeIdentity:
    def parse(name: str, how: Any) -> Any:
        try:
            return how(contents[name])
        except (IdentityError, ValueError, TypeError, LookupError, RecursionError) as error:
            raise _damaged(directory / name, error) from None

    key = parse(KEY, keys.parse_certificate_key)
    chain = parse(CERTIFICATE, parse_certificates)
    roots = parse(ROOTS, parse_bundle)
    parse(ORDER_PUBLIC_KEY, keys.parse_order_public_key)
    server = parse(SERVER, _parse_server)
    identity = parse(CERTIFICATE, lambda _: read_identity(chain[0]))
    if role is not None and identity.role is not role:
        raise _damaged(directory / CERTIFICATE, f"it is that of {identity.uri}, not of a {role}")
    if key.public_key() != chain[0].public_key():
        raise StoredIdentityError(
            f"{directory}: {KEY} and {CERTIFICATE} do not belong together: {_REMEDY}"
        )
    if not _leads_to_root(chain, roots):
        raise StoredIdentityError(
            f"{directory}: {CERTIFICATE} was not issued under a root in {ROOTS}: {_REMEDY}"
        )
    return NodeIdentity(
        identity=identity,
        key=contents[KEY],
        certificates=contents[CERTIFICATE],
        roots=contents[ROOTS],
        order_public_key=contents[ORDER_PUBLIC_KEY],
        server=server,
    )


def _leads_to_root(chain: Sequence[x509.Certificate], roots: Bundle) -> bool:
    """Return whether each certificate signed the one before it, and a root signed the last.

    Expired certificates are accepted, so that an expired identity can be shown.
    """
    for certificate, issuers in zip(chain, [*([each] for each in chain[1:]), roots], strict=True):
        if not any(_signed(certificate, issuer) for issuer in issuers):
            return False
    return True


def _signed(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _parse_server(content: bytes) -> ServerAddresses:
    record = json.loads(content)
    return parse_server_addresses(record["servers"], record["slots"], record["protocol"])


def parse_server_addresses(servers: Any, slots: Any, protocol: Any) -> ServerAddresses:
    """Return what a node knows about its server, from the values of a file or message.

    Args:
        servers: the list of the server's addresses.
        slots: the slots that the server allows this node; None if it does not limit them.
        protocol: a list of two numbers: the server's version of the protocol, and the oldest that
            it reads.

    Raises:
        ValueError: a value has a wrong type or is out of bounds.
    """
    if not isinstance(servers, list) or not 1 <= len(servers) <= _MAX_SERVERS:
        raise ValueError(f"servers: expected a list of 1 to {_MAX_SERVERS}")
    for each in servers:
        if not _is_tcp_address(each):
            raise ValueError(f"servers: expected HOST:PORT, got {each!r:.80}")
    if slots is not None and (type(slots) is not int or slots < 1):
        raise ValueError(f"slots: expected a number from 1, or null, got {slots!r:.40}")
    numbers = isinstance(protocol, list) and len(protocol) == 2
    if not numbers or any(type(each) is not int or each < 0 for each in protocol):
        raise ValueError("protocol: expected two numbers")
    return ServerAddresses(tuple(servers), slots, (protocol[0], protocol[1]))


def _is_tcp_address(value: Any) -> bool:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        return False
    try:
        address = parse_address(value)
    except ValueError:
        return False
    return isinstance(address, TcpAddress) and address.port > 0


def _damaged(path: Path, why: object) -> StoredIdentityError:
    return StoredIdentityError(f"{path} is damaged ({why}): {_REMEDY}")
