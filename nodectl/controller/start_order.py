"""The order to start a world: check it, turn it into a request for a shim, and save the request.

A fault of the order is reported as the end of its ranks. If this node cannot start any job at the
moment, the report says so: the server then places the job on other nodes and gives this node no
more work until the cause is removed.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pliant.nodectl.controller.server_connection.confirmed_heartbeat import expired_order
from pliant.nodectl.controller.users.user_worlds import UserWorlds
from pliant.nodectl.controller.world_state import LocalWorld, refusal_report
from pliant.nodectl.host import procfs
from pliant.nodectl.host.containment import SlotCpus
from pliant.nodectl.host.log_to_stderr import describe
from pliant.nodectl.host.process_limit import task_limit
from pliant.nodectl.host.ucx_devices import ucx_devices
from pliant.nodectl.settings import ControllerSettings, interfaces
from pliant.nodectl.world_folder import (
    ADDRESS,
    CHECKPOINT_KEY,
    HOSTS,
    NODES,
    ROOTS,
    STEP_SOCKET,
    WORLD_NAME,
    StartRequest,
    WorldFolder,
    to_text,
)
from pliant.protos import node_pb2 as wire
from pliant.protos.signed_orders.launch_content import job_variables
from pliant.protos.signed_orders.launch_order import LaunchOrderError, decode
from pliant.protos.signed_orders.signature_and_validity import SIGNATURE_BYTES

if TYPE_CHECKING:
    # It loads the package cryptography, which a node without a certificate does not need.
    from pliant.nodectl.certified.server_address_for_applications import ApplicationAccess

logger = logging.getLogger("pliant.nodectl")

#: The reason of a start that failed because of this node begins with these words.
CANNOT_START = "cannot start jobs"

DEFAULT_GRACE_S = 5.0

#: Values of `StartWorld.bind` other than the default, which binds each rank to its processor.
BIND_NODE, BIND_NONE = "node", "none"

#: MPICH prefers libfabric's *sockets* provider where it is built in: it is no longer maintained,
#: slower than *tcp*, and listens on the outer interface whatever ``FI_TCP_IFACE`` says.
NO_SOCKETS = "^sockets"

_ADDRESS = re.compile(r"[0-9]+\.|.*[:/]")


class OrderError(Exception):
    """An order that no node can carry out; the text says why."""


class UserRefusedError(OrderError):
    """This node cannot start processes of the user whom an order names; the text says why."""


class NotStartedError(Exception):
    """None of the ranks that an order names is started on this node; the text says why."""

    def __init__(self, reason: str, report: wire.NodeReport, *, node_fault: bool = False) -> None:
        super().__init__(reason)
        self.report, self.node_fault = report, node_fault


def create_world(
    order: wire.StartWorld,
    settings: ControllerSettings,
    folder: Path,
    contact: float | None,
    shares: NodeShares,
    access: ApplicationAccess | None = None,
    users: UserWorlds | None = None,
) -> LocalWorld:
    """Check an order to start a world (a set of ranks), and save it in the spool; return the world.

    If the root helper starts the world, the job's secrets (its token and the key of its
    checkpoints) are not saved in the spool, because the job's user could not read them there.

    Args:
        order: the order to start a world.
        settings: the settings of this node.
        folder: the folder of the worlds.
        contact: the time of the last confirmed contact with the server; None if it is unknown.
        shares: assigns CPUs, memory and devices of this node to the ranks.
        access: the server's address and roots for applications; None if the order has them.
        users: starts the world as its user; None if this account starts it.

    Raises:
        NotStartedError: the order was not saved; holds the report for the server.
    """
    boot = procfs.boot_id()
    try:
        if users is not None:
            request = _make_user_request(order, settings, users, boot, access)
            secrets = b"", b"", b""
        else:
            _check_own_user(order, is_joined=access is not None)
            request = make_request(order, settings, folder, boot, access)
            secrets = order.token, order.node_list, order.checkpoint_key
        request.contact = contact or 0.0
        shares.assign(request, order, bind=settings.bind)
        folder.mkdir(mode=0o700, exist_ok=True)
        files = (access.address, access.roots) if access and users is None else None
        spool = WorldFolder.create(folder, request, *secrets, access=files)
        return LocalWorld(request, spool, helper=users.helper if users is not None else None)
    except (OrderError, LaunchOrderError, ValueError) as error:
        reason = f"{settings.name}: {error}"
        # An administrator can end both: the job is held until then.
        held = isinstance(error, UserRefusedError | LaunchOrderError)
        report = refusal_report(order, reason, user_refused=held)
        raise NotStartedError(reason, report) from error
    except OSError as error:
        reason = f"{CANNOT_START}: {describe(f'spool {folder}', error)}"
        report = refusal_report(order, reason, node_fault=True)
        raise NotStartedError(reason, report, node_fault=True) from error


def refuse_start(
    order: wire.StartWorld, settings: ControllerSettings, has_ended: bool, contact: float | None
) -> wire.NodeReport | None:
    """Return a report that refuses an order to start ranks; None if it can be carried out.

    It is refused if these ranks have ended here, or if the node is out of contact for too long.

    Args:
        order: the order.
        settings: the settings of this node.
        has_ended: whether these ranks have ended here. Then the order is a repeated one, or from a
            server with an older copy of its database.
        contact: the time of the last confirmed contact with the server; None if it is unknown.
    """
    if has_ended:
        reason = f"{settings.name}: a world of this name has ended here already"
        return refusal_report(order, reason)
    if late := expired_order(order, contact):
        logger.error("not started: %s: %s", order.world, late)
        return refusal_report(order, f"{settings.name}: {late}", cut_off=True)
    return None


def repeat_start(
    order: wire.StartWorld, known: LocalWorld, settings: ControllerSettings
) -> list[wire.NodeReport]:
    """Return the reports that answer a repeated order to start ranks that are here already.

    If the order names other processors than ``known``, the report refuses it: the database of the
    server may be an older copy. Otherwise all reports about the ranks are repeated, because that
    copy may lack exits that the server had acknowledged.

    Args:
        order: the repeated order.
        known: the ranks as they were started here.
        settings: the settings of this node.
    """
    if known.request.ranks != [(place.rank, place.processor) for place in order.ranks]:
        here = "a world of this name runs here on other processors"
        return [refusal_report(order, f"{settings.name}: {here}")]
    known.acknowledged.clear()
    return known.unacknowledged()


def make_request(
    order: wire.StartWorld,
    settings: ControllerSettings,
    spool_folder: Path,
    boot: str,
    access: ApplicationAccess | None = None,
) -> StartRequest:
    """Return the request that a shim reads, made from the server's order to start ranks.

    Raises:
        OrderError: no node can carry out the order.
    """
    if not WORLD_NAME.fullmatch(order.world):
        raise OrderError(f"no name for a world: {order.world!r}")
    if not order.ranks:
        raise OrderError("no rank of this world is on this node")
    local = len(order.ranks)
    size = order.world_size or local
    environment = make_environment(order, settings, spool_folder / order.world)
    if access is not None:
        environment |= _access_variables(access, spool_folder / order.world)
    if (order.type or "mpi") == "mpi":
        _check_interface(environment)
    return StartRequest(
        world=order.world,
        job=order.job,
        run=order.run,
        resize=order.resize,
        type=order.type or "mpi",
        size=size,
        ranks=[(place.rank, place.processor) for place in order.ranks],
        argv=[to_text(argument) for argument in order.argv],
        environment=environment,
        directory=to_text(order.directory) or "/",
        stdin=to_text(order.stdin),
        stdout=to_text(order.stdout),
        stderr=to_text(order.stderr),
        umask=order.umask,
        mapping=order.process_mapping or f"(vector,(0,1,{local}))",
        spans_nodes=order.spans_nodes,
        grace_s=order.kill_grace_s or DEFAULT_GRACE_S,
        boot=boot,
        stop_after_s=order.stop_after_s if order.HasField("stop_after_s") else None,
        lease_s=order.lease_s,
        max_tasks=task_limit(settings.most_processes),
        truncate_before=order.truncate_before,
        record_load_s=order.record_load_s,
        first_rank=order.first_rank if order.HasField("first_rank") else None,
    )


def _check_own_user(order: wire.StartWorld, *, is_joined: bool) -> None:
    """Check that a job belongs to the user as whom this controller runs.

    Args:
        order: the order to start ranks of the job.
        is_joined: whether this node has joined a cluster, whose server signs all orders.

    Raises:
        UserRefusedError: the job is another user's, or its user is unknown.
        LaunchOrderError: the signed order is damaged.
    """
    if is_joined and not order.signed_order:
        raise UserRefusedError(
            "the server did not sign the order, because its host does not know the user of the job"
        )
    if order.signed_order:
        uid = decode(order.signed_order[:-SIGNATURE_BYTES]).uid
        if uid != os.getuid():
            raise UserRefusedError(
                f"the job belongs to user {uid}, and no root helper runs here that could start it: "
                "start `pliant node helper` as root, then the controller again"
            )


def _make_user_request(
    order: wire.StartWorld,
    settings: ControllerSettings,
    users: UserWorlds,
    boot: str,
    access: ApplicationAccess | None,
) -> StartRequest:
    """Return the request for ranks that the root helper starts as the job's user.

    Raises:
        OrderError: no node can carry out the order.
        UserRefusedError: the server has not signed the order.
        LaunchOrderError: the signed order is damaged.
    """
    if not order.signed_order:
        raise UserRefusedError(
            "the server has not signed the order: its host does not know the user"
        )
    signed = decode(order.signed_order[:-SIGNATURE_BYTES])  # the helper verifies it
    request = make_request(order, settings, users.folder(order.job, order.run), boot, access)
    request.uid, request.by_helper = signed.uid, True
    return request


class NodeShares(NamedTuple):
    """Assigns CPUs, memory and devices of this node to the ranks that are started."""

    slots: SlotCpus
    #: All worlds here.
    worlds: Collection[LocalWorld]
    #: Number of devices of each kind on this node.
    gres: Mapping[str, int]

    def assign(self, request: StartRequest, order: wire.StartWorld, *, bind: bool) -> None:
        """Set the CPUs, devices and memory of the ranks in a request, as its order requires.

        Args:
            request: the request, which names the ranks.
            order: says how they are bound, and how much memory the job may have here.
            bind: whether the settings of this node permit to bind ranks.
        """
        if bind and order.bind != BIND_NONE:
            request.cpus = self._cpus(request, shared=order.bind == BIND_NODE)
            request.shares_cpus = order.bind == BIND_NODE and bool(request.cpus)
        request.node_name = request.environment["PLIANT_NODE"]
        request.devices = self._devices(request, order)
        request.memory_bytes = order.memory_bytes
        job = [world for world in self.worlds if world.request.job == order.job]
        ranks = len(request.ranks) + sum(len(world.live_processors) for world in job)
        request.memory_per_rank_bytes = order.memory_bytes // ranks

    def _devices(self, request: StartRequest, order: wire.StartWorld) -> dict[str, list[list[int]]]:
        """Return, for each kind of device, a list with the indices of each rank's devices."""
        count = len(request.ranks)
        found = {kind: [list[int]() for _ in request.ranks] for kind in self.gres}
        for device in order.devices:
            each, indices = len(device.indices) // count, list(device.indices)
            found[device.kind] = [indices[at * each : (at + 1) * each] for at in range(count)]
        return found

    def _cpus(self, request: StartRequest, *, shared: bool) -> list[list[int]]:
        """Return the CPUs of each rank; empty if ranks are not bound.

        Args:
            request: the request, which names the ranks and their processors.
            shared: whether each rank may run on the CPUs of all ranks.
        """
        mine = [processor for _, processor in request.ranks]
        cpus = [list(self.slots.cpus_of(processor)) for processor in mine]
        if not all(cpus):
            return []
        return [self.slots.union(mine)] * len(mine) if shared else cpus


def _check_interface(environment: Mapping[str, str]) -> None:
    """Raise OrderError if the network interface that MPI is to use does not exist here.

    MPI's own error would not name the node.
    """
    name = environment.get("FI_TCP_IFACE", "")
    # MPICH also takes an address or a subnet there.
    is_name = environment.get("MPIR_CVAR_CH4_NETMOD") == "ofi" and not _ADDRESS.match(name)
    if name and is_name and name not in (there := interfaces()):
        raise OrderError(
            f"there is no network interface {name} (FI_TCP_IFACE) here; there are: "
            f"{', '.join(there)}"
        )


def make_environment(
    order: wire.StartWorld, settings: ControllerSettings, folder: Path
) -> dict[str, str]:
    """Return the environment variables that are the same for all ranks started by an order here.

    Args:
        order: the order.
        settings: the settings of this node.
        folder: the folder of these ranks, to whose files some variables refer.
    """
    is_mpi = order.type in {"", "mpi"}
    variables = job_variables(order.environment)
    defaults = {
        "MPIR_CVAR_CH4_NETMOD": settings.transport,
        "FI_TCP_IFACE": settings.interface,
        "FI_PROVIDER": NO_SOCKETS,
    }
    if not is_mpi:
        defaults |= _launcher_variables(order, settings, folder)
    ours = {
        "PLIANT_JOB": str(order.job),
        "PLIANT_RUN": str(order.run),
        "PLIANT_RESIZE": str(order.resize),
        "PLIANT_EPOCH": str(order.epoch),
        "PLIANT_ROLE": "join" if order.resize else "start",
        "PLIANT_WORLD": order.world,
        "PLIANT_APPLICATION_ADDRESS": order.application_address,
        "PLIANT_ADDRESS_FILE": to_text(order.address_file),
        "PLIANT_CHECKPOINT": to_text(order.checkpoint),
        "PLIANT_CHECKPOINT_KEY_FILE": str(folder / CHECKPOINT_KEY) if order.checkpoint_key else "",
        "PLIANT_ROOTS_FILE": "",  # see _access_variables
        "PLIANT_TOKEN_FILE": str(folder / "token"),
        "PLIANT_NODE": settings.name,
        "PLIANT_NODE_ADDRESS": settings.address,
        "PLIANT_NODE_LIST": str(folder / NODES),
        "PLIANT_HOST_FILE": str(folder / HOSTS) if order.type == "script" else "",
        "PLIANT_STEP_SOCKET": str(folder / STEP_SOCKET) if order.type == "script" else "",
        "PLIANT_NODES": str(_count_lines(order.node_list)),
    }
    processors = _processors(order)
    if processors:
        ours["PLIANT_PROCESSORS"] = ",".join(map(str, processors))
    if is_mpi:
        # Otherwise a leaving rank would wait in MPI_Finalize for the ranks that stay.
        ours["MPIR_CVAR_NO_COLLECTIVE_FINALIZE"] = "1"
    found = {**defaults, **variables, **ours}
    is_ucx = found["MPIR_CVAR_CH4_NETMOD"] == "ucx"
    if is_ucx and (devices := ucx_devices(found["FI_TCP_IFACE"])):
        found.setdefault("UCX_NET_DEVICES", devices)
    return found


def _launcher_variables(
    order: wire.StartWorld, settings: ControllerSettings, folder: Path
) -> dict[str, str]:
    """Return the environment variables with which an mpiexec that the job runs finds its nodes.

    For a script, they make mpiexec use all processors of the job. For a job on one node, they stop
    mpiexec from connecting to other hosts.
    """
    variables = {}
    if _count_lines(order.node_list) <= 1:
        variables["HYDRA_LAUNCHER"] = "fork"  # it need not reach other hosts
    if order.type == "script" and order.world_size > 1:
        hosts = str(folder / HOSTS)
        variables["HYDRA_HOST_FILE"] = str(folder / NODES)
        variables["OMPI_MCA_orte_default_hostfile"] = hosts  # Open MPI 4
        variables["PRTE_MCA_prte_default_hostfile"] = hosts  # Open MPI 5
        if settings.interface:
            # Open MPI hangs if hosts have a second interface with the same address, as docker0.
            variables["OMPI_MCA_btl_tcp_if_include"] = settings.interface
            variables["OMPI_MCA_oob_tcp_if_include"] = settings.interface
    return variables


def _access_variables(access: ApplicationAccess, folder: Path) -> dict[str, str]:
    """Return the environment variables from which an application learns how to reach the server.

    They are set on nodes with a certificate, where applications connect over TLS.
    """
    return {
        "PLIANT_APPLICATION_ADDRESS": access.address,
        "PLIANT_ADDRESS_FILE": str(folder / ADDRESS),
        "PLIANT_ROOTS_FILE": str(folder / ROOTS),
    }


def _processors(order: wire.StartWorld) -> list[int]:
    """Return the number of each rank's processor, in rank order, including ranks on other nodes.

    Empty if the order names only the processors of this node.
    """
    if order.processors:
        return list(order.processors)
    if len(order.ranks) == (order.world_size or len(order.ranks)):
        return [place.processor for place in sorted(order.ranks, key=lambda place: place.rank)]
    return []


def _count_lines(text: bytes) -> int:
    return max(1, sum(1 for line in text.splitlines() if line.strip()))
