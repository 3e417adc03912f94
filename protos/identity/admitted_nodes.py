"""The nodes that a cluster has admitted, in a file of the server.

A valid certificate alone does not admit a node. The node must also be listed here and must not be
revoked, and the serial number of its certificate must be listed for it. So if a node is revoked and
admitted again, it gets a new certificate, and the old one stays refused.

The server, and commands of the administrator, read and change the file at the same time, under a
lock. A damaged file is an error; it does not count as an empty list.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cryptography import x509

from pliant.protos.daemons.atomic_files import write_private
from pliant.protos.daemons.private_paths import read_private
from pliant.protos.identity.certificate_names import Role, check_name
from pliant.protos.identity.certificates import ends_at, read_identity
from pliant.protos.identity.identity_errors import (
    CertificateError,
    IdentityNameError,
    StoredIdentityError,
)
from pliant.protos.identity.stored_files import lock_for

#: Its name in the directory of the cluster's identity.
FILE = "admitted-nodes.json"
#: The same for login agents.
AGENTS_FILE = "admitted-login-agents.json"
_FORM = 1
_MAX_BYTES = 1 << 24
#: A node that renews again and again without using the new certificates keeps the last ones only.
_MAX_CERTIFICATES = 8
_HEX = re.compile(r"[0-9a-f]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AdmittedCertificate:
    """A certificate that admits a node, as recorded in the list of nodes."""

    #: The serial number, in hexadecimal digits.
    serial: str
    #: The key identifier of the authority that issued it, in hexadecimal digits.
    issuer: str
    #: Until when it is valid, in seconds since the epoch.
    ends: float


@dataclass(frozen=True, slots=True)
class AdmittedNode:
    """The entry of a node that joined the cluster; it stays in the list if the node is revoked."""

    name: str
    #: The most slots that it may offer; None for any number.
    slots: int | None
    #: Those that count, oldest first. There is more than one while the node renews.
    certificates: tuple[AdmittedCertificate, ...]
    #: In seconds since the epoch.
    admitted_at: float
    #: When it was revoked, None if it may connect.
    revoked_at: float | None = None

    @property
    def serials(self) -> tuple[str, ...]:
        """Return the serial numbers of the certificates with which the node may connect."""
        return tuple(each.serial for each in self.certificates)

    @property
    def ends(self) -> float:
        """Return when the last of the node's certificates expires, in seconds since the epoch.

        0 if the entry has no certificate.
        """
        return max((each.ends for each in self.certificates), default=0.0)

    def allows(self, certificate: x509.Certificate) -> bool:
        """Return whether the node may connect with a certificate. TLS must have verified it."""
        return self.revoked_at is None and serial_of(certificate) in self.serials


class AdmittedNodes:
    """The list of admitted nodes, in the file in which the server keeps it."""

    def __init__(self, path: Path, *, role: Role = Role.NODE) -> None:
        """Use the list in the file ``path``, whose entries are for certificates with this role."""
        self._path, self._role = path, role

    def read(self) -> Mapping[str, AdmittedNode]:
        """Return all nodes by name; an empty mapping if no node has joined yet.

        Raises:
            StoredIdentityError: the file is damaged.
            UntrustedPathError, OSError: the file cannot be used.
        """
        try:
            content = read_private(self._path, max_bytes=_MAX_BYTES)
        except FileNotFoundError:
            return {}
        try:
            return _parse(content)
        except (ValueError, TypeError, LookupError, RecursionError, IdentityNameError) as error:
            raise StoredIdentityError(
                f"{self._path} is damaged ({error}): restore it from a copy; without one, move it "
                "away and let every node join again"
            ) from None

    def find(self, name: str) -> AdmittedNode | None:
        """Return the node of this name; None if it has never joined."""
        return self.read().get(name)

    def admit(
        self, name: str, slots: int | None, certificate: x509.Certificate, *, now: float
    ) -> AdmittedNode:
        """List a node with its first certificate, and drop its earlier entry; return the new entry.

        Args:
            name: the name of the node.
            slots: the most slots (processors) that the node may offer; None for any number.
            certificate: the certificate, which must name the node.
            now: the present time, in seconds since the epoch.

        Raises:
            CertificateError: the certificate belongs to another name.
            StoredIdentityError, UntrustedPathError, OSError: as `read`.
        """
        _check_owner(self._role, name, certificate)
        node = AdmittedNode(name, slots, (_record(certificate),), now)
        self._change(lambda nodes: nodes.update({name: node}))
        return node

    def add_certificate(
        self, name: str, certificate: x509.Certificate, *, replaces: str, now: float
    ) -> None:
        """List a new certificate for a node that has asked for one.

        The node's earlier certificates stay until `confirm`, because the answer may get lost.

        Args:
            name: the name of the node.
            certificate: the new certificate.
            replaces: the serial number of the certificate with which the node asked.
            now: the present time, in seconds since the epoch.

        Raises:
            CertificateError: the node is not admitted with the certificate that is replaced.
            StoredIdentityError, UntrustedPathError, OSError: as `read`.
        """
        _check_owner(self._role, name, certificate)

        def add(nodes: dict[str, AdmittedNode]) -> None:
            node = _get_active(nodes, name)
            if replaces not in node.serials:
                raise CertificateError(
                    f"node {name}: certificate {replaces} does not count any more; let the node "
                    f"join again (`pliant cluster revoke {name}`, then `pliant cluster token`)"
                )
            # The one with which it asked stays, even if it has just expired or there are many.
            kept = [
                each for each in node.certificates if now < each.ends or each.serial == replaces
            ]
            while len(kept) >= _MAX_CERTIFICATES:
                del kept[1 if kept[0].serial == replaces else 0]
            nodes[name] = replace(node, certificates=(*kept, _record(certificate)))

        self._change(add)

    def confirm(self, name: str, serial: str) -> None:
        """Drop a node's certificates that are older than the one with serial number ``serial``.

        The node has now connected with that one. Nothing changes if the node has no older one.

        Raises:
            StoredIdentityError, UntrustedPathError, OSError: as `read`.
        """
        if not _is_later(self.find(name), serial):
            return

        def drop(nodes: dict[str, AdmittedNode]) -> None:
            node = nodes.get(name)
            if node is not None and _is_later(node, serial):
                left = node.certificates[node.serials.index(serial) :]
                nodes[name] = replace(node, certificates=left)

        self._change(drop)

    def revoke(self, name: str, *, now: float) -> AdmittedNode:
        """Mark a node as revoked, and return its entry.

        The entry keeps the time of the first call if the node was revoked before.

        Raises:
            CertificateError: no node of this name has joined.
            StoredIdentityError, UntrustedPathError, OSError: as `read`.
        """

        def mark(nodes: dict[str, AdmittedNode]) -> None:
            node = _get(nodes, name)
            if node.revoked_at is None:
                nodes[name] = replace(node, revoked_at=now)

        return self._change(mark)[name]

    def _change(
        self, change: Callable[[dict[str, AdmittedNode]], None]
    ) -> Mapping[str, AdmittedNode]:
        with lock_for(self._path):
            nodes = dict(self.read())
            change(nodes)
            listed = [asdict(nodes[name]) for name in sorted(nodes)]
            content = json.dumps({"form": _FORM, "nodes": listed}, indent=1)
            write_private(self._path, content.encode("ascii"))
        return nodes


def serial_of(certificate: x509.Certificate) -> str:
    """Return the serial number of a certificate in the form that the list of nodes uses."""
    return f"{certificate.serial_number:x}"


def issuer_of(certificate: x509.Certificate) -> str:
    """Return the key id of the authority that issued a certificate; empty if none is named.

    It equals the result of `key_id_of` for the certificate of this authority.
    """
    try:
        found = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    except x509.ExtensionNotFound:
        return ""
    return (found.key_identifier or b"").hex()


def key_id_of(authority: x509.Certificate) -> str:
    """Return the key identifier of an authority, in hexadecimal digits."""
    found = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return found.digest.hex()


def _record(certificate: x509.Certificate) -> AdmittedCertificate:
    return AdmittedCertificate(serial_of(certificate), issuer_of(certificate), ends_at(certificate))


def _check_owner(role: Role, name: str, certificate: x509.Certificate) -> None:
    identity = read_identity(certificate)
    if identity.role is not role or identity.name != name:
        raise CertificateError(f"the certificate of {identity.uri} is not that of {role} {name}")


def _get(nodes: Mapping[str, AdmittedNode], name: str) -> AdmittedNode:
    if name not in nodes:
        known = ", ".join(sorted(nodes)) or "none"
        raise CertificateError(f"node {name!r} has not joined the cluster; there are: {known}")
    return nodes[name]


def _get_active(nodes: Mapping[str, AdmittedNode], name: str) -> AdmittedNode:
    node = _get(nodes, name)
    if node.revoked_at is not None:
        raise CertificateError(f"node {name} is revoked: let it join again with a new token")
    return node


def _is_later(node: AdmittedNode | None, serial: str) -> bool:
    """Return whether the certificate ``serial`` is listed for a node, but is not its oldest."""
    return node is not None and serial in node.serials[1:]


def _parse(content: bytes) -> dict[str, AdmittedNode]:
    found = json.loads(content)
    if found["form"] != _FORM:
        raise ValueError(f"form: expected {_FORM}, got {found['form']!r:.40}")
    nodes = [_parse_node(each) for each in found["nodes"]]
    by_name = {each.name: each for each in nodes}
    if len(by_name) != len(nodes):
        raise ValueError("a node is listed twice")
    return by_name


def _parse_node(value: Mapping[str, Any]) -> AdmittedNode:
    name, slots, revoked = value["name"], value["slots"], value["revoked_at"]
    if not isinstance(name, str):
        raise ValueError("name: expected a text")
    check_name("node", name)
    if slots is not None and (type(slots) is not int or slots < 1):
        raise ValueError(f"{name}: slots: expected a number from 1, or null")
    return AdmittedNode(
        name=name,
        slots=slots,
        certificates=tuple(_parse_certificate(name, each) for each in value["certificates"]),
        admitted_at=_parse_time(name, "admitted_at", value["admitted_at"]),
        revoked_at=None if revoked is None else _parse_time(name, "revoked_at", revoked),
    )


def _parse_certificate(name: str, value: Mapping[str, Any]) -> AdmittedCertificate:
    serial, issuer = value["serial"], value["issuer"]
    for key, text in (("serial", serial), ("issuer", issuer)):
        if not isinstance(text, str) or not _HEX.fullmatch(text):
            raise ValueError(f"{name}: {key}: expected hexadecimal digits")
    return AdmittedCertificate(serial, issuer, _parse_time(name, "ends", value["ends"]))


def _parse_time(name: str, key: str, value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{name}: {key}: expected seconds since the epoch")
    return float(value)
