"""The files of a cluster's identity: created once by ``pliant cluster init``, and read later.

All files are in one directory of mode 0700. They are written into a draft directory next to it,
which is renamed when it is complete. So if the creation is interrupted, the directory does not
exist. Later changes replace several files together (see `stored_files` and `cluster_renewal`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pliant.protos.daemons.atomic_files import sync_folder, write_private
from pliant.protos.daemons.private_paths import UntrustedPathError, open_private
from pliant.protos.identity import authority, keys
from pliant.protos.identity.authority import Authority
from pliant.protos.identity.certificate_names import SERVER_NAME, Identity, Role
from pliant.protos.identity.certificates import (
    format_certificates,
    parse_certificates,
    read_identity,
)
from pliant.protos.identity.identity_errors import (
    CertificateError,
    IdentityError,
    StoredIdentityError,
)
from pliant.protos.identity.stored_files import LOCK, lock_files, read_files
from pliant.protos.identity.trust_bundle import Bundle, parse_bundle

_T = TypeVar("_T")

#: The roots that members trust. Members get a copy.
ROOTS = "roots.pem"
#: The key of the root. It may be moved offline.
ROOT_KEY = "root.key"
ISSUER = "issuer.pem"
ISSUER_KEY = "issuer.key"
#: The server's certificate, followed by that of the issuing authority.
SERVER = "server.pem"
SERVER_KEY = "server.key"
ORDER_KEY = "order.key"
#: With it, nodes verify launch orders. Nodes get a copy.
ORDER_PUBLIC_KEY = "order.pub"
#: The key of the old root, while a new one replaces it.
OLD_ROOT_KEY = "old-root.key"
_FILES = (
    *(ROOTS, ISSUER, SERVER, ORDER_PUBLIC_KEY),
    *(ORDER_KEY, SERVER_KEY, ISSUER_KEY, ROOT_KEY, OLD_ROOT_KEY),
)
#: They change whenever a certificate does. A running server looks at their times.
WATCHED = (ROOTS, ISSUER, SERVER)


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """The public part of a cluster's identity, as read from its directory."""

    cluster: str
    roots: Bundle
    issuer: x509.Certificate
    #: The server's certificate and that of the authority that issued it.
    server: tuple[x509.Certificate, ...]
    order_public_key: bytes
    #: Whether the key of the root is in the directory, and not offline.
    has_root_key: bool


@dataclass(frozen=True, slots=True)
class ServerCredentials:
    """The server's certificate chain, its key and the roots that it trusts, in PEM form."""

    key: bytes = field(repr=False)
    #: The server's certificate and that of the authority that issued it.
    certificates: bytes
    #: The roots under which nodes have their certificates.
    roots: bytes


def create_identity(
    directory: Path, cluster: str, addresses: Sequence[str], *, now: float
) -> ClusterIdentity:
    """Create the keys and certificates of a new cluster, and write them to disk.

    Args:
        directory: the directory to create for them; it must not exist.
        cluster: the cluster's name.
        addresses: DNS names and IP addresses of the server.
        now: the present time, in seconds since the epoch.

    Raises:
        StoredIdentityError: there is an identity or another file, another creation is running, or
            another account could change the directory.
        IdentityNameError: the name or an address is not usable.
        OSError: the files cannot be written.
    """
    files = _make_files(cluster, addresses, now)
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _only_creation_in(directory.parent):
        _check_unused(directory)
        draft = directory.with_name(f".{directory.name}.new")
        # What a killed creation left: keys that nobody has used. The lock excludes a running one.
        if draft.is_dir() and not draft.is_symlink():
            shutil.rmtree(draft)
        draft.mkdir(mode=0o700)
        draft.chmod(0o700)  # the umask may have removed some of it
        try:
            write_private(draft / LOCK, b"")
            for name, text in files.items():
                write_private(draft / name, text.encode("ascii"))
            draft.rename(directory)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        sync_folder(directory.parent)
    return load_identity(directory)


def load_identity(directory: Path) -> ClusterIdentity:
    """Read the certificates of a cluster, and check the owner and mode of every file.

    Raises:
        StoredIdentityError: there is no identity, or a file is missing or damaged.
        UntrustedPathError: another account could read or change a file.
        OSError: a file cannot be read.
    """
    return parse_identity(directory, read_identity_files(directory))


def parse_identity(directory: Path, contents: Mapping[str, bytes]) -> ClusterIdentity:
    """Return the public part of a cluster's identity; check that all files belong together.

    Args:
        directory: the directory from which the contents come; messages name it.
        contents: the contents of the files, by name.

    Raises:
        StoredIdentityError: a file is missing or damaged, or the files do not belong together.
    """

    def read(name: str, parse: Callable[[bytes], _T]) -> _T:
        return _parse(directory, contents, name, parse)

    roots = read(ROOTS, parse_bundle)
    (issuer, *more) = read(ISSUER, parse_certificates)
    server = read(SERVER, parse_certificates)
    order_key = read(ORDER_KEY, keys.parse_order_key)
    public = read(ORDER_PUBLIC_KEY, keys.parse_order_public_key)
    server_key = read(SERVER_KEY, keys.parse_certificate_key)
    read(ISSUER_KEY, lambda pem: Authority(issuer, keys.parse_certificate_key(pem)))
    try:
        identity = read_identity(server[0])
    except CertificateError as error:
        raise _damaged(directory / SERVER, error) from None
    # The issuing authority may have been renewed after it issued the server's certificate.
    authorities = [issuer, *server[1:]]
    fits = (
        identity.role is Role.SERVER
        and not more
        and server_key.public_key() == server[0].public_key()
        and _is_issued_by(server[0], server[1:])
        and all(_is_issued_by(each, roots) for each in authorities)
    )
    if not fits:
        raise StoredIdentityError(
            f"{directory}: the files do not belong together; restore the directory from a copy"
        )
    if order_key.public_key() != public:
        raise _damaged(directory / ORDER_PUBLIC_KEY, "it is not the public key of " + ORDER_KEY)
    return ClusterIdentity(
        cluster=identity.cluster,
        roots=roots,
        issuer=issuer,
        server=server,
        order_public_key=public.public_bytes_raw(),
        has_root_key=ROOT_KEY in contents,
    )


def load_issuer(directory: Path) -> Authority:
    """Read the authority with which the server issues certificates.

    Raises:
        StoredIdentityError, UntrustedPathError, OSError: as `load_identity`.
    """
    return parse_issuer(directory, read_identity_files(directory))


def parse_issuer(directory: Path, contents: Mapping[str, bytes]) -> Authority:
    """Return the authority with which the server issues certificates, from the contents of files.

    Args:
        directory: the directory from which the contents come; messages name it.
        contents: the contents of the files, by name.

    Raises:
        StoredIdentityError: a file is missing or damaged.
    """
    (issuer, *_) = _parse(directory, contents, ISSUER, parse_certificates)
    key = _parse(directory, contents, ISSUER_KEY, keys.parse_certificate_key)
    try:
        return Authority(issuer, key)
    except CertificateError as error:
        raise _damaged(directory / ISSUER_KEY, error) from None


def load_order_key(directory: Path) -> Ed25519PrivateKey:
    """Read the key with which the server signs launch orders.

    Raises:
        StoredIdentityError, UntrustedPathError, OSError: as `load_identity`.
    """
    contents = read_identity_files(directory)
    parse_identity(directory, contents)
    return _parse(directory, contents, ORDER_KEY, keys.parse_order_key)


def load_server_credentials(directory: Path) -> ServerCredentials:
    """Read the server's certificate chain, its key and the roots that it trusts.

    Raises:
        StoredIdentityError, UntrustedPathError, OSError: as `load_identity`.
    """
    contents = read_identity_files(directory)
    parse_identity(directory, contents)
    return ServerCredentials(contents[SERVER_KEY], contents[SERVER], contents[ROOTS])


def read_identity_files(directory: Path) -> dict[str, bytes]:
    """Return the contents of all existing files of an identity, by name.

    Raises:
        StoredIdentityError: there is no identity.
        UntrustedPathError: another account could read or change a file.
        OSError: a file cannot be read.
    """
    if not (directory / ROOTS).exists():  # the lock would be made in any directory
        raise StoredIdentityError(
            f"{directory} has no identity of a cluster: make one with `pliant cluster init`"
        )
    with lock_files(directory):
        return read_files(directory, _FILES)


def _make_files(cluster: str, addresses: Sequence[str], now: float) -> dict[str, str]:
    """Return the content of all new files by name; files that may be public come first."""
    root = authority.create_root(cluster, now=now)
    issuer = authority.create_issuer(root, now=now)
    server_key, order_key = keys.create_certificate_key(), keys.create_order_key()
    identity = Identity(cluster, Role.SERVER, SERVER_NAME)
    request = authority.create_request(server_key)
    server = authority.issue(issuer, request, identity, now=now, addresses=addresses)
    return {
        ROOTS: format_certificates([root.certificate]),
        ISSUER: format_certificates([issuer.certificate]),
        SERVER: format_certificates(server),
        ORDER_PUBLIC_KEY: keys.format_public_key(order_key.public_key()),
        ORDER_KEY: keys.format_private_key(order_key),
        SERVER_KEY: keys.format_private_key(server_key),
        ISSUER_KEY: keys.format_private_key(issuer.key),
        ROOT_KEY: keys.format_private_key(root.key),
    }


@contextmanager
def _only_creation_in(parent: Path) -> Iterator[None]:
    """Within this context, keep other processes from creating an identity in ``parent``.

    Also check that no other account could replace the new files.
    """
    try:
        os.close(open_private(parent, shared=True))
    except UntrustedPathError as error:
        # Its own remedy would be wrong for directories such as /tmp.
        what = str(error).partition(";")[0]
        raise StoredIdentityError(f"{what}; name a directory elsewhere with --directory") from None
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another `pliant cluster init` is running in {parent}: wait for its end"
            raise StoredIdentityError(message) from None
        yield
    finally:
        os.close(descriptor)


def _check_unused(directory: Path) -> None:
    """Check that a directory does not exist, so that no identity or file is overwritten."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    if ROOTS in names or ISSUER_KEY in names:
        raise StoredIdentityError(
            f"{directory} has the identity of a cluster already, and its nodes trust no other; to "
            "see it: `pliant cluster show`; to make another cluster: `--directory DIR`; to give "
            "this one up: move the directory away"
        )
    # Even an empty one: it may have another owner or mode, or be somebody's current directory.
    raise StoredIdentityError(f"{directory} exists already: name a new directory")


def _is_issued_by(certificate: x509.Certificate, issuers: Sequence[x509.Certificate]) -> bool:
    for issuer in issuers:
        try:
            certificate.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


def _parse(
    directory: Path, contents: Mapping[str, bytes], name: str, parse: Callable[[bytes], _T]
) -> _T:
    path = directory / name
    if name not in contents:
        raise StoredIdentityError(f"{path} is missing: restore it from a copy")
    try:
        return parse(contents[name])
    except IdentityError as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, why: object) -> StoredIdentityError:
    return StoredIdentityError(f"{path} is damaged ({why}): restore it from a copy")
