"""The message to a host that becomes a node: one JSON line from the machine of the server."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass

from pliant.client.client_errors import ClientError


class NodeStartMessageError(ClientError):
    """A message that starts a node cannot be read."""


@dataclass(frozen=True)
class NodeStartMessage:
    """The message that makes a host a node: names, addresses and secrets."""

    #: Name of the node.
    name: str
    #: A short text that is different for each cluster, in the name of the node's folder.
    cluster_id: str
    #: The join token, which is a secret.
    token: str
    #: HOST:PORT of the server's port for joining hosts.
    server: str
    #: Options of the controller.
    options: tuple[str, ...] = ()
    #: Folder in which the node's folder is made; empty for that of temporary files.
    node_dir: str = ""
    #: Files with the address and the secret of the server, for a node that joins without a token
    #: and shares these files with the server.
    address_file: str = ""
    secret_file: str = ""

    @property
    def folder(self) -> str:
        """Return the state folder of the node on its host."""
        return node_folder(self.node_dir, self.cluster_id, self.name)


def node_folder(node_dir: str, cluster_id: str, name: str) -> str:
    """Return the state folder of a node on this host, which belongs to one user and one cluster."""
    base = node_dir or tempfile.gettempdir()
    return os.path.join(base, f"pliant-{os.getuid()}-{cluster_id}-{name}")


def encode_start_messages(messages: list[NodeStartMessage]) -> bytes:
    """Return the line with the start messages of one or more nodes."""
    return json.dumps([asdict(each) for each in messages]).encode("ascii") + b"\n"


def decode_start_messages(line: bytes) -> list[NodeStartMessage]:
    """Return the start messages in a line.

    Raises:
        NodeStartMessageError: the line is damaged, or another version of Pliant wrote it.
    """
    try:
        found = [NodeStartMessage(**each) for each in json.loads(line)]
    except (ValueError, TypeError):
        raise NodeStartMessageError(
            "the message that starts a node cannot be read: install the same version of Pliant "
            "on all hosts"
        ) from None
    return [NodeStartMessage(**{**asdict(each), "options": tuple(each.options)}) for each in found]
