"""Content of a launch order: everything in the start of a process that the server decides.

The server computes a digest of its order to the controller. The node computes the same digest from
the request with which it starts the processes. Both leave out the variables that the node adds,
such as the path of the job's folder. These variables are the only values that a controller can
choose, and none of them names a program or a library.

Nothing here loads protobuf, because the root helper of a node uses this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from pliant.protos.signed_orders.launch_order import digest_launch

if TYPE_CHECKING:
    from pliant.protos.node_pb2 import StartWorld

#: The variables that a node may set or change.
NODE_VARIABLES = frozenset(
    {
        "FI_PROVIDER",
        "FI_TCP_IFACE",
        "HYDRA_HOST_FILE",
        "HYDRA_LAUNCHER",
        "MPIR_CVAR_CH4_NETMOD",
        "MPIR_CVAR_NO_COLLECTIVE_FINALIZE",
        "OMPI_MCA_btl_tcp_if_include",
        "OMPI_MCA_oob_tcp_if_include",
        "OMPI_MCA_orte_default_hostfile",
        "PLIANT_ADDRESS_FILE",
        "PLIANT_APPLICATION_ADDRESS",
        "PLIANT_CHECKPOINT",  # covered as `LaunchContent.checkpoint`
        "PLIANT_CHECKPOINT_KEY_FILE",
        "PLIANT_EPOCH",
        "PLIANT_HOST_FILE",
        "PLIANT_JOB",
        "PLIANT_NODE",
        "PLIANT_NODES",
        "PLIANT_NODE_ADDRESS",
        "PLIANT_NODE_LIST",
        "PLIANT_PROCESSORS",
        "PLIANT_RESIZE",
        "PLIANT_ROLE",
        "PLIANT_ROOTS_FILE",
        "PLIANT_RUN",
        "PLIANT_STEP_SOCKET",
        "PLIANT_TOKEN_FILE",
        "PLIANT_WORLD",
        "PRTE_MCA_prte_default_hostfile",
        "UCX_NET_DEVICES",
    }
)

#: Variables of the submitting process that describe its own world; a rank must not inherit them.
FOREIGN_PREFIXES = (
    "PMI_",
    "PMIX_",
    "HYDI_",
    "MPI_LOCAL",
    "OMPI_COMM_WORLD_",
    "PLIANT_CONTROL_FD",
    "PLIANT_STEP",
    "PLIANT_WORLD",
    "PRTE_LAUNCHED",
)


@dataclass(frozen=True, slots=True)
class LaunchContent:
    """The values that the server signs when it orders a node to start ranks.

    In texts, bytes that are not UTF-8 are written as surrogate escapes.
    """

    world: str
    resize: int
    type: str
    size: int
    #: Rank in the world and processor of each rank on this node.
    ranks: tuple[tuple[int, int], ...]
    argv: tuple[str, ...]
    #: Without `NODE_VARIABLES`.
    environment: Mapping[str, str]
    directory: str
    stdin: str
    stdout: str
    stderr: str
    umask: int
    truncate_before: float
    #: Folder of the job's checkpoints; empty if it has none.
    checkpoint: str
    #: The token of the run, the list of nodes and the key of the checkpoints.
    secrets: tuple[bytes, bytes, bytes]
    #: Memory that the job may have on this node; 0 if there is no limit.
    memory_bytes: int = 0
    #: Devices of the ranks on this node by kind, in order of the ranks.
    devices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: Added to the rank for ``%t`` in the names of files; None if the names have no marks.
    first_rank: int | None = None
    #: Seconds between rows of the record of the load; 0 if the load is not recorded.
    record_load_s: float = 0.0

    def digest(self) -> bytes:
        """Return the digest of the content, which a signed launch order contains."""
        fields = {
            "world": self.world,
            "resize": self.resize,
            "type": self.type,
            "size": self.size,
            "ranks": [list(place) for place in self.ranks],
            "files": [self.stdin, self.stdout, self.stderr],
            "umask": self.umask,
            "truncate_before": float(self.truncate_before),
            "checkpoint": self.checkpoint,
            "secrets": [sha256(secret).hexdigest() for secret in self.secrets],
            "memory_bytes": self.memory_bytes,
            "devices": {kind: list(numbers) for kind, numbers in self.devices.items() if numbers},
        }
        if self.first_rank is not None:
            fields["first_rank"] = self.first_rank
        if self.record_load_s:
            fields["record_load_s"] = float(self.record_load_s)
        # ASCII, with sorted keys: equal fields give equal text in each version of Python.
        head = json.dumps(fields, sort_keys=True)
        return digest_launch([head, *self.argv], self.environment, self.directory)

    @classmethod
    def from_order(cls, order: StartWorld) -> LaunchContent:
        """Return the signed part of the server's order to a controller to start ranks."""
        return cls(
            world=order.world,
            resize=order.resize,
            type=order.type or "mpi",
            size=order.world_size or len(order.ranks),
            ranks=tuple((place.rank, place.processor) for place in order.ranks),
            argv=tuple(map(_text, order.argv)),
            environment=signed_variables(job_variables(order.environment)),
            directory=_text(order.directory) or "/",
            stdin=_text(order.stdin),
            stdout=_text(order.stdout),
            stderr=_text(order.stderr),
            umask=order.umask,
            truncate_before=order.truncate_before,
            checkpoint=_text(order.checkpoint),
            secrets=(order.token, order.node_list, order.checkpoint_key),
            memory_bytes=order.memory_bytes,
            devices={device.kind: tuple(device.indices) for device in order.devices},
            first_rank=order.first_rank if order.HasField("first_rank") else None,
            record_load_s=order.record_load_s,
        )


def job_variables(entries: Iterable[bytes]) -> dict[str, str]:
    """Return the environment variables of a job by name, from its ``NAME=value`` entries.

    Variables with one of the ``FOREIGN_PREFIXES`` are left out.
    """
    variables = {}
    for entry in entries:
        name, equals, value = _text(entry).partition("=")
        if name and equals and not name.startswith(FOREIGN_PREFIXES):
            variables[name] = value
    return variables


def signed_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``environment`` that the server's signature covers.

    The node sets the others, ``NODE_VARIABLES``, itself.
    """
    return {name: value for name, value in environment.items() if name not in NODE_VARIABLES}


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
