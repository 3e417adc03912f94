"""Renewal of the login agent's certificate, when half of its lifetime is over."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from pliant.client.login_agent.server_link import CHUNK_BYTES, CONNECT_S, ServerLinks
from pliant.core.support.base_error import PliantError
from pliant.protos.daemons.agent_renewal_messages import RenewalRequest, decode_renewal_answer
from pliant.protos.identity import authority, keys, node_files
from pliant.protos.identity.certificate_names import Role
from pliant.protos.identity.certificates import parse_certificates, renew_at
from pliant.protos.identity.trust_bundle import parse_bundle

log = logging.getLogger(__name__)

#: Time between two looks at the certificate, seconds.
INTERVAL_S = 600.0


async def keep_renewed(directory: Path, links: ServerLinks) -> None:
    """Renew the certificate whenever it is due, until cancelled. Failures are logged."""
    while True:
        try:
            if is_due(directory, time.time()):
                await renew(directory, links)
                log.info("the certificate of this login agent is renewed")
        except (PliantError, OSError, ValueError, TimeoutError) as error:
            log.warning("the certificate of this login agent is not renewed: %s", error)
        await asyncio.sleep(INTERVAL_S)


def is_due(directory: Path, now: float) -> bool:
    """Return whether half of the lifetime of the certificate has passed."""
    identity = node_files.load_node_identity(directory, role=Role.LOGIN_AGENT)
    return now >= renew_at(identity.chain[0])


async def renew(directory: Path, links: ServerLinks) -> None:
    """Get a certificate for a new key from the server, and store both.

    Raises:
        PliantError, OSError: the server refuses, or the files cannot be used.
    """
    key = keys.create_certificate_key()
    reader, writer = await links.connect()
    try:
        writer.write(RenewalRequest(authority.create_request(key)).encode())
        async with asyncio.timeout(CONNECT_S):
            line = await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("the server closed the connection") from None
    except asyncio.LimitOverrunError:
        raise ConnectionResetError(f"an answer of more than {CHUNK_BYTES} bytes") from None
    finally:
        writer.transport.abort()
    answer = decode_renewal_answer(line)
    node_files.replace_certificate(
        directory,
        keys.format_private_key(key).encode("ascii"),
        parse_certificates(answer.certificates),
        parse_bundle(answer.roots),
        now=time.time(),
    )
