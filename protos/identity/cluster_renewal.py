"""Renew the certificates of a cluster, and replace its root, while the server runs.

A root is replaced in two steps. In the first step, a new root is made, and both roots are trusted.
From then on, nodes that join or renew their certificate get one under the new root. The server
keeps its certificate under the old root, which all nodes trust. The second step is possible when no
node has a certificate under the old root any more, so that every node trusts the new root. Then the
server gets a certificate under the new root, and the old root is dropped. The old root's key is not
needed in either step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from pliant.protos.identity import authority, keys
from pliant.protos.identity.admitted_nodes import AdmittedNode, issuer_of, key_id_of
from pliant.protos.identity.authority import DAY_S, Authority
from pliant.protos.identity.certificate_names import SERVER_DNS_NAME, SERVER_NAME, Identity, Role
from pliant.protos.identity.certificates import (
    MAX_PEM_BYTES,
    check_time,
    ends_at,
    fingerprint,
    format_certificates,
    parse_certificates,
)
from pliant.protos.identity.cluster_files import (
    ISSUER,
    ISSUER_KEY,
    OLD_ROOT_KEY,
    ROOT_KEY,
    ROOTS,
    SERVER,
    SERVER_KEY,
    ClusterIdentity,
    parse_identity,
    parse_issuer,
    read_identity_files,
)
from pliant.protos.identity.identity_errors import (
    CertificateError,
    IdentityKeyError,
    StoredIdentityError,
)
from pliant.protos.identity.stored_files import lock_files, read_files, replace_files
from pliant.protos.identity.trust_bundle import add_root, drop_root

#: The server's certificate must be valid for this long when a roll-over starts: nodes renew within
#: half of their certificate's lifetime, and a node that was off may join again.
MIN_ROLL_OVER_S = 60 * DAY_S

Changes = dict[str, bytes | None]


def renew(
    directory: Path,
    *,
    now: float,
    addresses: Sequence[str] = (),
    removed: Sequence[str] = (),
    replaces_addresses: bool = False,
    root_key: Path | None = None,
    server_only: bool = False,
) -> ClusterIdentity:
    """Replace the issuing authority, and the server's certificate and key; return the new identity.

    Certificates of nodes stay valid, because the root stays the same.

    Args:
        directory: the directory of the cluster's identity.
        now: the present time, in seconds since the epoch.
        addresses: addresses of the server, in addition to those in its certificate.
        removed: addresses that the new certificate does not have.
        replaces_addresses: whether only the addresses in ``addresses`` are in the new certificate.
        root_key: a file with the key of the root, if it is not in the directory.
        server_only: whether to keep the issuing authority. Then no key of the root is needed.

    Raises:
        CertificateError: a root is being replaced, the issuing authority has expired, or the
            certificate does not have an address that is to be removed.
        StoredIdentityError: the key of the root is offline, or a file is damaged.
        IdentityNameError: an address is not usable.
        UntrustedPathError, OSError: the files cannot be used.
    """
    contents = read_identity_files(directory)
    found = parse_identity(directory, contents)
    if len(found.roots) > 1:
        raise CertificateError(
            "the root is being replaced: first run `pliant cluster roll-over finish`"
        )
    (root,) = found.roots
    old = () if replaces_addresses else authority.server_addresses(found.server[0])
    kept = _without(old, removed)
    if server_only:
        issuer = parse_issuer(directory, contents)
        changes: Changes = {}
    else:
        signer = Authority(root, _root_key(directory, contents, root, root_key))
        issuer = authority.create_issuer(signer, now=now)
        changes = _issuer_files(issuer)
    changes |= _server_files(issuer, found, [*kept, *addresses], now)
    return _replace(directory, contents, changes)


def start_roll_over(directory: Path, *, now: float) -> ClusterIdentity:
    """Create a new root with an issuing authority, and return the new identity.

    From now on, both roots are trusted.

    Raises:
        CertificateError: a root is being replaced already, or the server's certificate ends soon.
        StoredIdentityError, UntrustedPathError, OSError: the files cannot be used.
    """
    contents = read_identity_files(directory)
    found = parse_identity(directory, contents)
    if len(found.roots) > 1:
        raise CertificateError(
            "the root is being replaced already: `pliant cluster roll-over finish` ends it"
        )
    for certificate in found.server:
        check_time(certificate, "a certificate of the server", now)
        if ends_at(certificate) < now + MIN_ROLL_OVER_S:
            raise CertificateError(
                f"a certificate of the server ends in {(ends_at(certificate) - now) / DAY_S:.0f} "
                f"days, and a roll-over may take {MIN_ROLL_OVER_S / DAY_S:.0f}: first run `pliant "
                "cluster renew`"
            )
    root = authority.create_root(found.cluster, now=now)
    issuer = authority.create_issuer(root, now=now)
    changes: Changes = {
        ROOTS: _pem(add_root(found.roots, root.certificate)),
        **_issuer_files(issuer),
        ROOT_KEY: keys.format_private_key(root.key).encode("ascii"),
    }
    if ROOT_KEY in contents:
        changes[OLD_ROOT_KEY] = contents[ROOT_KEY]
    return _replace(directory, contents, changes)


def finish_roll_over(
    directory: Path, nodes: Mapping[str, AdmittedNode], *, now: float
) -> ClusterIdentity:
    """Issue a server certificate under the new root, and drop the old root.

    Args:
        directory: the directory of the cluster's identity.
        nodes: the nodes that the cluster has admitted.
        now: the present time, in seconds since the epoch.

    Returns:
        The new identity.

    Raises:
        CertificateError: no root is being replaced, or a node still has a certificate under the old
            root; the message names these nodes.
        StoredIdentityError, UntrustedPathError, OSError: the files cannot be used.
    """
    contents = read_identity_files(directory)
    found = parse_identity(directory, contents)
    if len(found.roots) < 2:
        raise CertificateError(
            "no root is being replaced: `pliant cluster roll-over start` begins it"
        )
    if waiting := needing_old_root(found, nodes, now=now):
        raise CertificateError(
            f"these nodes still have certificates under the old root: {', '.join(waiting)}. They "
            "renew them while they are connected to the server; `pliant cluster revoke NODE` "
            "excludes a node that will not return"
        )
    issuer = parse_issuer(directory, contents)
    server = _server_files(issuer, found, authority.server_addresses(found.server[0]), now)
    (old,) = (root for root in found.roots if issuer_of(issuer.certificate) != key_id_of(root))
    chain = parse_certificates(server[SERVER])
    roots = drop_root(found.roots, fingerprint(old), in_use=[chain], now=now)
    changes: Changes = {**server, ROOTS: _pem(roots), OLD_ROOT_KEY: None}
    return _replace(directory, contents, changes)


def needing_old_root(
    found: ClusterIdentity, nodes: Mapping[str, AdmittedNode], *, now: float
) -> list[str]:
    """Return the names of the nodes that still have a valid certificate under the old root.

    A certificate is under the old root if the present issuing authority has not issued it. Revoked
    nodes are left out.
    """
    issuer = key_id_of(found.issuer)
    return [
        node.name
        for node in nodes.values()
        if node.revoked_at is None
        and any(each.issuer != issuer and now < each.ends for each in node.certificates)
    ]


def _root_key(
    directory: Path, contents: Mapping[str, bytes], root: x509.Certificate, path: Path | None
) -> ec.EllipticCurvePrivateKey:
    """Return the private key of the root, after checking that it belongs to this root.

    Args:
        directory: the directory of the cluster's identity.
        contents: the contents of its files, by name.
        root: the certificate of the root.
        path: the file with the key; None if the key is in the directory.

    Raises:
        StoredIdentityError: there is no key, or it is not the key of this root.
    """
    if path is not None:
        with open(path, "rb") as file:
            content = file.read(MAX_PEM_BYTES)
    elif ROOT_KEY in contents:
        path, content = directory / ROOT_KEY, contents[ROOT_KEY]
    else:
        raise StoredIdentityError(
            f"the key of the root is offline: name its file with --root-key FILE, or copy it to "
            f"{directory / ROOT_KEY}; without it, `pliant cluster renew --server-only` renews the "
            "server's certificate, and `pliant cluster roll-over start` makes a new root"
        )
    try:
        key = keys.parse_certificate_key(content)
    except IdentityKeyError as error:
        raise StoredIdentityError(f"{path} is no key of a root: {error}") from None
    if key.public_key() != root.public_key():
        raise StoredIdentityError(f"{path} is not the key of the root of this cluster")
    return key


def _issuer_files(issuer: Authority) -> Changes:
    return {
        ISSUER: _pem([issuer.certificate]),
        ISSUER_KEY: keys.format_private_key(issuer.key).encode("ascii"),
    }


def _without(addresses: Sequence[str], removed: Sequence[str]) -> list[str]:
    for address in removed:
        if address not in addresses or address == SERVER_DNS_NAME:
            own = [each for each in addresses if each != SERVER_DNS_NAME]
            raise CertificateError(
                f"the certificate of the server has no address {address} that could be removed; it "
                f"has {', '.join(own) or 'none'}"
            )
    return [address for address in addresses if address not in removed]


def _server_files(
    issuer: Authority, found: ClusterIdentity, addresses: Sequence[str], now: float
) -> dict[str, bytes]:
    key = keys.create_certificate_key()
    chain = authority.issue(
        issuer,
        authority.create_request(key),
        Identity(found.cluster, Role.SERVER, SERVER_NAME),
        now=now,
        addresses=addresses,
    )
    return {SERVER: _pem(chain), SERVER_KEY: keys.format_private_key(key).encode("ascii")}


def _replace(directory: Path, before: Mapping[str, bytes], changes: Changes) -> ClusterIdentity:
    """Replace files of an identity, and return the new identity.

    Args:
        directory: the directory of the identity.
        before: the contents that the caller has read, by name.
        changes: the new contents by name; None to remove a file.

    Raises:
        StoredIdentityError: another command has changed the files since they were read.
    """
    contents = {**before, **changes}
    left = {name: content for name, content in contents.items() if content is not None}
    result = parse_identity(directory, left)
    with lock_files(directory):
        if read_files(directory, contents) != before:
            raise StoredIdentityError(
                f"{directory} was changed by another command at the same time: try again"
            )
        replace_files(directory, changes)
    return result


def _pem(certificates: Sequence[x509.Certificate]) -> bytes:
    return format_certificates(certificates).encode("ascii")
