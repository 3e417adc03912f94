"""The identity in a certificate (cluster, role and name, as a URI), and a server's addresses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Self

from pliant.protos.grpc_channel_options import TLS_SERVER_NAME
from pliant.protos.identity.identity_errors import CertificateError, IdentityNameError

SCHEME = "pliant://"
#: Every server certificate has this DNS name, so that clients can check one name whichever address
#: they have connected to.
SERVER_DNS_NAME = TLS_SERVER_NAME
#: The name of a server in its identity; a cluster has one.
SERVER_NAME = "server"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
_MAX_DNS_NAME = 253


class Role(StrEnum):
    """The role of a certificate's owner in its cluster: server, node or login agent."""

    SERVER = "server"
    NODE = "node"
    LOGIN_AGENT = "login-agent"


@dataclass(frozen=True, slots=True)
class Identity:
    """The owner of a certificate: cluster, role and name.

    Raises:
        IdentityNameError: a name has characters that a URI or a path must not have.
    """

    cluster: str
    role: Role
    name: str

    def __post_init__(self) -> None:
        check_name("cluster", self.cluster)
        check_name(self.role.value, self.name)

    @property
    def uri(self) -> str:
        """Return the identity as certificates carry it: ``pliant://CLUSTER/ROLE/NAME``."""
        return f"{SCHEME}{self.cluster}/{self.role.value}/{self.name}"

    @classmethod
    def from_uri(cls, uri: str) -> Self:
        """Return the identity in a URI such as ``pliant://CLUSTER/ROLE/NAME``.

        Raises:
            CertificateError: the URI has another form, or its role is unknown.
        """
        parts = uri.removeprefix(SCHEME).split("/")
        if not uri.startswith(SCHEME) or len(parts) != 3:
            raise CertificateError(f"identity {uri!r} is not {SCHEME}CLUSTER/ROLE/NAME")
        cluster, role, name = parts
        if role not in set(Role):
            known = ", ".join(Role)
            raise CertificateError(f"identity {uri!r} has the unknown role {role!r} ({known})")
        try:
            return cls(cluster, Role(role), name)
        except IdentityNameError as error:
            raise CertificateError(f"identity {uri!r}: {error}") from None


def check_name(what: str, name: str) -> None:
    """Check that a name has only characters that are safe in a URI, a path and an option.

    Raises:
        IdentityNameError: the name has another character; the message has the permitted ones.
    """
    if not _NAME.fullmatch(name):
        raise IdentityNameError(
            f"{what} {name!r}: write at most 64 letters, digits, '.', '_' or '-', "
            "beginning with a letter or digit"
        )


def parse_host(text: str) -> str | IPv4Address | IPv6Address:
    """Return the host that a text names: an IP address, or a DNS name in lower case.

    Raises:
        IdentityNameError: the text is neither.
    """
    try:
        address = ip_address(text)
    except ValueError:
        name = text.lower()
    else:
        if isinstance(address, IPv4Address) or address.scope_id is None:
            return address
        raise IdentityNameError(f"address {text!r}: leave out the interface (%{address.scope_id})")
    labels = name.split(".")
    # Four numbers that are no IP address are a typo in one; no DNS name ends with a number.
    is_name = all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdigit()
    if not is_name or len(name) > _MAX_DNS_NAME:
        raise IdentityNameError(
            f"address {text!r}: write the name of a host or an IP address, without a port"
        )
    return name
