"""MPI operations that cannot work in a job that grows: make them raise an error, or correct them.

MPICH 5.0 knows where a process runs only for the processes of its own world, those that were
started together and share an ``MPI_COMM_WORLD``. A job that has grown consists of several worlds.
`Win.Allocate_shared` then takes processes of other worlds for neighbors: some ranks return an
error, and the others wait for them for ever. `Comm.Split_type` puts ranks of different nodes into
one communicator. A communicator made from a group alone (`Create_from_group`) is connected over one
world only: MPICH stops the process with an internal error. These are replaced, in the classes of
mpi4py, by functions that first look who would take part.
"""

import ctypes
import gc
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from pliant.appkit.appkit_errors import UnsupportedOperation
from pliant.appkit.mpi.receive_from_any_source import (
    has_no_shared_memory,
    replacements,
    transport_is_ucx,
)


def refuse_unsupported() -> None:
    """Make mpi4py raise an error for operations that cannot work in a job that grows.

    It replaces methods of mpi4py in this process. A second call changes nothing.
    """
    _replace(MPI.Comm, "Split_type", _split_type, is_static=False)
    _replace(MPI.Intracomm, "Create_dist_graph", _create_dist_graph, is_static=False)
    _replace(MPI.Win, "Allocate_shared", _allocate_shared)
    _replace(MPI.Intracomm, "Create_from_group", _create_from_group)
    _replace(MPI.Intercomm, "Create_from_groups", _create_from_groups)
    for name, replacement in replacements().items():
        _replace(MPI.Comm, name, replacement, is_static=False)


def _of_one_world(group: MPI.Group) -> bool:
    """Return whether all processes of a group were started together, in one ``MPI_COMM_WORLD``.

    All processes of the group get the same answer without communication. Each looks for the others
    in its own world; if the group has processes of two worlds, each process fails to find some.
    """
    world = MPI.COMM_WORLD.Get_group()
    try:
        ranks = group.Translate_ranks(list(range(group.Get_size())), world)
    finally:
        world.Free()
    return MPI.UNDEFINED not in list(ranks)


def _may_share_memory(comm: MPI.Comm) -> bool:
    """Return whether MPICH knows which ranks of ``comm`` can share memory; the same on all ranks.

    False if ``comm`` has ranks that joined in a growth, or if shared memory is switched off.
    """
    if has_no_shared_memory():
        return False
    group = comm.Get_group()
    try:
        return _of_one_world(group)
    finally:
        group.Free()


def _split_type(
    original: Callable[..., MPI.Comm],
    comm: MPI.Intracomm,
    split_type: int,
    key: int = 0,
    info: MPI.Info = MPI.INFO_NULL,
) -> MPI.Comm:
    # Other kinds, and a rank that takes part with UNDEFINED, are MPICH's.
    alone = comm.Is_intra() and not _may_share_memory(comm)
    if not alone or split_type not in (MPI.COMM_TYPE_SHARED, MPI.UNDEFINED):
        return original(comm, split_type, key, info)
    is_in = split_type == MPI.COMM_TYPE_SHARED
    return comm.Split(comm.rank if is_in else MPI.UNDEFINED, key)


def _create_dist_graph(
    original: Callable[..., MPI.Distgraphcomm], comm: MPI.Intracomm, *more: Any, **named: Any
) -> MPI.Distgraphcomm:
    # Measured with MPICH 5.0.2: over ucx without MPICH's own shared memory, it never returns.
    if transport_is_ucx() and comm.Get_size() > 1:
        raise UnsupportedOperation(
            "comm.Create_dist_graph hangs with the transport ucx; "
            "use comm.Create_dist_graph_adjacent, or the transport ofi"
        )
    return original(comm, *more, **named)


def _allocate_shared(
    original: Callable[..., MPI.Win],
    size: int,
    disp_unit: int = 1,
    info: MPI.Info = MPI.INFO_NULL,
    comm: MPI.Intracomm = MPI.COMM_SELF,
) -> MPI.Win:
    if comm.Get_size() > 1 and not _may_share_memory(comm):
        raise UnsupportedOperation(
            "MPI.Win.Allocate_shared: the ranks of a job that can grow do not share memory; "
            "use MPI.Win.Allocate, or a communicator of comm.Split_type(MPI.COMM_TYPE_SHARED)"
        )
    return original(size, disp_unit, info, comm)


def _check_groups(name: str, *groups: MPI.Group) -> None:
    both = MPI.Group.Union(groups[0], groups[-1])
    try:
        if not _of_one_world(both):
            raise UnsupportedOperation(
                f"{name}: the group has ranks that joined the job in a resize; "
                "use job.comm.Create_group, or job.comm.Split"
            )
    finally:
        both.Free()


def _create_from_group(
    original: Callable[..., MPI.Intracomm], group: MPI.Group, *more: Any, **named: Any
) -> MPI.Intracomm:
    _check_groups("MPI.Intracomm.Create_from_group", group)
    return original(group, *more, **named)


def _create_from_groups(
    original: Callable[..., MPI.Intercomm],
    local_group: MPI.Group,
    local_leader: int,
    remote_group: MPI.Group,
    *more: Any,
    **named: Any,
) -> MPI.Intercomm:
    _check_groups("MPI.Intercomm.Create_from_groups", local_group, remote_group)
    return original(local_group, local_leader, remote_group, *more, **named)


def _replace(
    owner: type, name: str, replacement: Callable[..., Any], *, is_static: bool = True
) -> None:
    """Replace a method of an mpi4py class by a function.

    The classes of mpi4py are extension types. Python refuses to assign their attributes, but their
    dictionary can be changed. A subclass would not help, because other libraries return windows and
    communicators of the original class.

    Args:
        owner: the class.
        name: the name of the method.
        replacement: the function; gets the original method, then the arguments of the call.
        is_static: whether the method is called without an object, as class methods are.
    """
    original = getattr(owner, name)
    if getattr(original, "refuses_unsupported", False):
        return
    space = next(iter(gc.get_referents(owner.__dict__)), None)
    if not isinstance(space, dict) or name not in space:
        return

    def call(*positional: Any, **named: Any) -> Any:
        return replacement(original, *positional, **named)

    call.__name__, call.__doc__ = name, original.__doc__
    call.refuses_unsupported = True  # type: ignore[attr-defined]
    space[name] = staticmethod(call) if is_static else call
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))
