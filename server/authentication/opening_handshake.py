"""The server's side of the handshake at the start of a stream, and the error for refused nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pliant.core.support.base_error import PliantError
from pliant.protos import hmac_handshake


class NodeNotAdmittedError(PliantError):
    """A node with a certificate may not connect; the message names the node and the reason."""

    def __init__(self, text: str, name: str = "", *, is_temporary: bool = False) -> None:
        super().__init__(text)
        #: Of the node, as far as its certificate is known.
        self.name = name
        #: Whether the cause is not the node, so that it should try again.
        self.is_temporary = is_temporary


async def verify_peer(context: Any, reports: AsyncIterator[Any], key: bytes) -> bool:
    """Prove that this server knows a key, and return whether the client does.

    The server proves itself first, so a client never sends anything that an impostor could use.

    Args:
        context: the context of the stream; its metadata start the handshake.
        reports: the messages of the client; the first one must be its proof.
        key: the shared secret: of the cluster for a node, of the run for an application.

    Raises:
        StopAsyncIteration: if the client closed the stream before it sent a proof.
    """
    shaking = hmac_handshake.begin(context.invocation_metadata(), key)
    await context.send_initial_metadata(shaking.metadata)
    first = await anext(reports)
    return first.WhichOneof("body") == "proof" and shaking.verifies(first.proof)
