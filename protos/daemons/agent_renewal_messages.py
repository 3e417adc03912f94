"""The messages with which a login agent renews its certificate: its request and the answer.

A login agent is the daemon on a login host that forwards users' requests to the server.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pliant.protos.daemons.login_agent_user import FORM, UserAssertionError


@dataclass(frozen=True, slots=True)
class RenewalRequest:
    """A login agent's request for a new certificate: a signing request in PEM form."""

    request: bytes

    def encode(self) -> bytes:
        """Return the message as one line of JSON."""
        record = {"login_agent": FORM, "renew": self.request.decode("ascii")}
        return json.dumps(record).encode("ascii") + b"\n"


def decode_renewal(line: bytes) -> RenewalRequest | None:
    """Return the renewal request in a login agent's first line; None if it is another message."""
    try:
        record = json.loads(line)
        if record["login_agent"] != FORM or not isinstance(record["renew"], str):
            return None
        return RenewalRequest(record["renew"].encode("ascii"))
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class RenewalAnswer:
    """The server's answer to a login agent that renews its certificate. All values are PEM."""

    certificates: bytes
    roots: bytes

    def record(self) -> dict[str, Any]:
        """Return the answer as a dictionary that becomes a JSON object."""
        return {
            "ok": True,
            "certificates": self.certificates.decode("ascii"),
            "roots": self.roots.decode("ascii"),
        }


def decode_renewal_answer(line: bytes) -> RenewalAnswer:
    """Read the answer of the server.

    Raises:
        UserAssertionError: the server refuses, or the answer is something else.
    """
    try:
        record = json.loads(line)
        if record.get("ok") is not True:
            raise UserAssertionError(str(record["error"]["message"]))
        certificates, roots = record["certificates"], record["roots"]
        return RenewalAnswer(certificates.encode("ascii"), roots.encode("ascii"))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise UserAssertionError("the server's answer is not a certificate") from None
