"""The registration of a node: what it offers, and what runs on it."""

from __future__ import annotations

from collections.abc import Iterable

from pliant.core.values.node_needs import parse_memory
from pliant.nodectl.controller.server_connection.last_server_generation import ServerStart
from pliant.nodectl.controller.world_state import LocalWorld
from pliant.nodectl.host import procfs
from pliant.nodectl.host.containment import Description
from pliant.nodectl.host.node_memory import usable_memory
from pliant.nodectl.settings import ControllerSettings
from pliant.protos import node_pb2 as wire
from pliant.protos import versions


def make_registration(
    settings: ControllerSettings,
    containment: Description,
    server: ServerStart,
    worlds: Iterable[LocalWorld],
    *,
    order_version: int | None,
) -> wire.Register:
    """Return the message with which this node registers at the server.

    Args:
        settings: the settings of this node.
        containment: the ways in which this node enforces the limits of jobs.
        server: the last one whose orders were carried out.
        worlds: the sets of ranks here, also ended ones whose exits are not acknowledged.
        order_version: the version of the launch orders that the root helper carries out; None if
            there is no helper, so that jobs do not run as their users.
    """
    return wire.Register(
        name=settings.name,
        cluster=settings.cluster,
        slots=settings.slots,
        boot_id=procfs.boot_id(),
        address=settings.address,
        memory_bytes=memory_of_jobs(settings),
        gres=settings.gres,
        properties=settings.properties,
        generation=server.generation,
        life=server.life,
        worlds=[world.to_live_world() for world in worlds],
        spare=settings.spare,
        joins_drained=settings.joins_drained,
        runs_as_user=order_version is not None,
        order_version=order_version or 0,
        containment=wire.Containment(**containment._asdict()),
        protocol=versions.PROTOCOL,
        oldest_reader=versions.OLDEST_READER,
    )


def memory_of_jobs(settings: ControllerSettings) -> int:
    """Return how many bytes of memory jobs may use here: the setting, or all usable memory."""
    return parse_memory(settings.memory) if settings.memory else usable_memory()
