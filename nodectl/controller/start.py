"""The order to start a world: written down, or refused for a fault of the order or of the node.

A node that can start nothing now, whatever it is, says so: the server sends the job elsewhere and
gives this node no more until somebody has seen to it.
"""

from __future__ import annotations

from pathlib import Path

from pliant.nodectl.controller.start_request import OrderError, make_request
from pliant.nodectl.controller.world import World, refusal
from pliant.nodectl.host.stderr_log import told
from pliant.nodectl.settings import Settings
from pliant.nodectl.spool import Spool
from pliant.protos import node_pb2 as wire

#: What begins the reason of each fault of a node.
CANNOT_START = "cannot start jobs"


class NotStartedError(Exception):
    """Nothing of a world is started here; the text says why."""

    def __init__(self, reason: str, report: wire.NodeReport, *, node_fault: bool = False) -> None:
        super().__init__(reason)
        self.report, self.node_fault = report, node_fault


def write_order(
    order: wire.StartWorld, settings: Settings, folder: Path, boot: str, contact: float | None
) -> World:
    """Put a world into the spool folder, which is made again if somebody has removed it.

    Raises:
        NotStartedError: with the report for the server.
    """
    try:
        request = make_request(order, settings, folder, boot)
        request.contact = contact or 0.0
        folder.mkdir(mode=0o700, exist_ok=True)
        spool = Spool.create(folder, request, order.token, order.node_list, order.checkpoint_key)
        return World(request, spool)
    except (OrderError, ValueError) as error:
        reason = f"{settings.name}: {error}"
        raise NotStartedError(reason, refusal(order, reason)) from error
    except OSError as error:
        reason = f"{CANNOT_START}: {told(f'spool {folder}', error)}"
        report = refusal(order, reason, node_fault=True)
        raise NotStartedError(reason, report, node_fault=True) from error


def start_again(order: wire.StartWorld, known: World, settings: Settings) -> list[wire.NodeReport]:
    """Return the answer to an order that was carried out, or was another one of the same name.

    Whoever gives it may be on an older copy of the database: it may have placed the world anew, and
    have forgotten ends that it has acknowledged.
    """
    if known.request.ranks != [(place.rank, place.processor) for place in order.ranks]:
        here = "a world of this name runs here on other processors"
        return [refusal(order, f"{settings.name}: {here}")]
    known.acknowledged.clear()
    return known.unacknowledged()
