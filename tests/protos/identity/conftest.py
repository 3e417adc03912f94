"""A cluster's authorities, and members with their keys."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from pliant.protos.identity import authority, keys
from pliant.protos.identity.authority import Authority
from pliant.protos.identity.certificate_names import Identity, Role
from pliant.protos.identity.certificates import format_certificates

#: Certificates have whole seconds.
NOW = float(int(time.time()))


@dataclass(frozen=True)
class Member:
    chain: tuple[x509.Certificate, ...]
    key: Any

    def write(self, folder: Path) -> tuple[str, str]:
        """Write certificates and key, and return their paths."""
        name = str(self.chain[0].serial_number)
        certificates, key = folder / f"{name}.pem", folder / f"{name}.key"
        certificates.write_text(format_certificates(self.chain))
        key.write_text(keys.format_private_key(self.key))
        return str(certificates), str(key)


def make_member(issuer: Authority, role: Role, name: str = "n7", **more: Any) -> Member:
    key = keys.create_certificate_key()
    more.setdefault("now", NOW)
    cluster = issuer.certificate.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)
    identity = Identity(str(cluster[0].value), role, name)
    return Member(authority.issue(issuer, authority.create_request(key), identity, **more), key)


@pytest.fixture(scope="session")
def root() -> Authority:
    return authority.create_root("blue", now=NOW)


@pytest.fixture(scope="session")
def issuer(root: Authority) -> Authority:
    return authority.create_issuer(root, now=NOW)


@pytest.fixture(scope="session")
def member(issuer: Authority) -> Callable[..., Member]:
    def make(role: Role, name: str = "n7", **more: Any) -> Member:
        return make_member(issuer, role, name, **more)

    return make
