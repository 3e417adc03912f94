"""Build the orders that start a world (a set of ranks): one for each node."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from pliant.core.commands import NodeShare
from pliant.core.values.ids import NodeName
from pliant.protos import node_pb2
from pliant.protos.mpich_variables_for_joined_worlds import JOINED_WORLDS
from pliant.server.checkpoints.checkpoint_folders import CheckpointFolders
from pliant.server.registry.job_program import RANK_MARKS, Program, expand, has_mark, node_marks
from pliant.server.registry.mpi_worlds import World
from pliant.server.registry.processor_nodes import Host, NodeMap

#: For all jobs with the transport ofi. MPICH 5.0.2 divides by zero (SIGFPE) when it sends a struct
#: datatype of different basic types over ofi without packing it first.
PACKED_DATATYPES = {"MPIR_CVAR_CH4_OFI_ENABLE_PT2PT_NOPACK": "0"}


#: Linux may stamp a file with a time that is older than the write by one tick of the kernel.
FILE_TIME_GRANULARITY_S = 0.01


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """Settings of this server that go into every order to start processes."""

    application_address: str
    address_file: str
    kill_grace_s: float
    lease_s: float = 0.0
    transport: str = ""
    interface: str = ""
    #: Where jobs write checkpoints; None if they write none.
    checkpoints: CheckpointFolders | None = None


def start_orders(
    world: World,
    job_type: str,
    program: Program,
    nodes: NodeMap,
    token: bytes,
    settings: LaunchSettings,
    *,
    may_grow: bool,
) -> Mapping[NodeName, node_pb2.StartWorld]:
    """Return, for each node, the order to start the ranks of a world that run there.

    Args:
        world: the ranks to start together, with their processors.
        job_type: ``mpi``, ``uni`` or ``script``.
        program: the program of the job.
        nodes: the map from processors to hosts.
        token: the secret with which the processes authenticate to the server as this run of the
            job.
        settings: the settings of this server.
        may_grow: whether ranks that are started later may join these ones.
    """
    variables = {
        "MPIR_CVAR_CH4_NETMOD": settings.transport,
        "FI_TCP_IFACE": settings.interface,
        **PACKED_DATATYPES,
        **(JOINED_WORLDS if may_grow else {}),
    }
    hosts = [nodes.host(processor) for processor in world.processors]
    # Built once and copied: its size grows with the number of nodes, so building it for each node
    # would take quadratic time.
    common = _common(world, job_type, program, hosts, token, settings)
    common.environment.extend(program.environment(**variables))
    orders: dict[NodeName, node_pb2.StartWorld] = {}
    # The nodes of the job, numbered in the order of their first ranks.
    numbers = {nodes.host(processor).name: 0 for processor in world.joins}
    numbers = {name: number for number, name in enumerate(numbers)}
    for rank, (host, processor) in enumerate(zip(hosts, world.processors, strict=True)):
        order = orders.get(host.name)
        if order is None:
            order = orders[host.name] = node_pb2.StartWorld()
            order.CopyFrom(common)
            if program.files_by_node:
                number = numbers.setdefault(host.name, len(numbers))
                _name_files(order, program, host.name, number, len(world.joins))
        order.ranks.add(rank=rank, processor=processor)
    if program.open_mode == "truncate" and (world.run, world.resize) == (1, 0):
        before = _truncate_before(world)
        for order in orders.values():
            order.truncate_before = before
    return orders


def _name_files(
    order: node_pb2.StartWorld, program: Program, node: str, number: int, first_rank: int
) -> None:
    """Set the names of input and output files in an order.

    The server replaces marks for the node, such as ``%N`` for its name. The node replaces the marks
    for the rank.

    Args:
        order: the order, which is changed.
        program: the program, with the names as patterns.
        node: the name of the node.
        number: the place of the node among the nodes of the job, from 0.
        first_rank: the number by which the job counts rank 0 of the started ranks.
    """
    values, keep = node_marks(node, number), frozenset[str]()
    if any(has_mark(name, RANK_MARKS) for name in (program.stdin, program.stdout, program.stderr)):
        order.first_rank, keep = first_rank, RANK_MARKS
    order.stdin = os.fsencode(expand(program.stdin, values, keep))
    order.stdout = os.fsencode(expand(program.stdout, values, keep))
    order.stderr = os.fsencode(expand(program.stderr, values, keep))


def _truncate_before(world: World) -> float:
    """Return the modification time before which nodes empty an existing output file.

    Each node empties the output files before its ranks start. Ranks on other nodes may have written
    to a file by then, and what they wrote must not be lost. If all ranks are on one node, the time
    is infinite, so every existing file is emptied.
    """
    return time.time() - FILE_TIME_GRANULARITY_S if world.spans_nodes else math.inf


def end_when_cut_off(
    orders: Iterable[node_pb2.StartWorld], stop_after_s: float | None, settings: LaunchSettings
) -> None:
    """Set in each order how long the processes may run while the node cannot reach the server.

    Args:
        orders: the start orders of all nodes of a world.
        stop_after_s: seconds without contact, after which the node ends the processes; None if
            they keep running.
        settings: the settings of this server.
    """
    if stop_after_s is not None:
        for order in orders:
            order.stop_after_s, order.lease_s = stop_after_s, settings.lease_s


def add_share(order: node_pb2.StartWorld, share: NodeShare | None) -> None:
    """Add to a node's order how much memory and which devices its processes may use.

    Args:
        order: the order, which is changed.
        share: memory and devices on this node; None if the processes have no limits.
    """
    if share is None:
        return
    order.memory_bytes = share.memory_bytes
    for kind, numbers in share.devices.items():
        order.devices.add(kind=kind, indices=numbers)


def _common(
    world: World,
    job_type: str,
    program: Program,
    hosts: Sequence[Host],
    token: bytes,
    settings: LaunchSettings,
) -> node_pb2.StartWorld:
    return node_pb2.StartWorld(
        world=world.name,
        job=world.job,
        run=world.run,
        resize=world.resize,
        epoch=world.epoch,
        type=job_type,
        world_size=len(world.processors),
        processors=world.processors,
        process_mapping=process_mapping([host.name for host in hosts]),
        spans_nodes=world.spans_nodes,
        argv=[os.fsencode(argument) for argument in program.argv],
        directory=os.fsencode(program.cwd),
        stdin=os.fsencode(program.stdin),
        stdout=os.fsencode(program.stdout),
        stderr=os.fsencode(program.stderr),
        umask=program.umask,
        bind=program.bind,
        record_load_s=program.record_load_s,
        token=token,
        application_address=settings.application_address,
        address_file=os.fsencode(settings.address_file),
        node_list=node_list(hosts),
        kill_grace_s=settings.kill_grace_s,
        checkpoint=os.fsencode(settings.checkpoints.path_of(world.job))
        if settings.checkpoints
        else b"",
    )


def node_list(hosts: Sequence[Host]) -> bytes:
    """Return the nodes of a job as text: a line ``address:number of ranks`` for each node.

    Args:
        hosts: the host of each rank, in rank order. The lines are in order of the first rank.
    """
    ranks: dict[str, int] = {}
    for host in hosts:
        ranks[host.address] = ranks.get(host.address, 0) + 1
    return "".join(f"{address}:{count}\n" for address, count in ranks.items()).encode("utf-8")


def process_mapping(nodes: Sequence[str]) -> str:
    """Return the nodes of all ranks in PMI form: ``(vector,(first node,nodes,ranks on each),...)``.

    Nodes are numbered from 0 in order of their first rank.

    Args:
        nodes: the name of each rank's node, in rank order.
    """
    numbers: dict[str, int] = {}
    for node in nodes:
        numbers.setdefault(node, len(numbers))
    blocks: list[list[int]] = []
    for node, ranks in groupby(nodes):
        number, count = numbers[node], len(list(ranks))
        last = blocks[-1] if blocks else None
        if last and last[0] + last[1] == number and last[2] == count:
            last[1] += 1
        else:
            blocks.append([number, 1, count])
    return "(vector," + ",".join("({},{},{})".format(*block) for block in blocks) + ")"
