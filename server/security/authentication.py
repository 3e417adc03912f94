"""The server's side of the handshake that opens every stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pliant.protos import handshake


async def verify_peer(context: Any, reports: AsyncIterator[Any], key: bytes) -> bool:
    """Prove that this server knows a key, and return whether the client does.

    The server proves itself first. So a client never sends anything that an impostor could use.

    Args:
        context: of the stream, whose metadata open a handshake.
        reports: what the client sends; its proof is taken from it.
        key: of the subject that the client has named.

    Raises:
        StopAsyncIteration: the client left before it proved anything.
    """
    shaking = handshake.begin(context.invocation_metadata(), key)
    await context.send_initial_metadata(shaking.metadata)
    first = await anext(reports)
    return first.WhichOneof("body") == "proof" and shaking.verifies(first.proof)
