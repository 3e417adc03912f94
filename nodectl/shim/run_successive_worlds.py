"""The process of shims: runs one world after the other, until the launcher has ended.

A process that has run a world waits for the next one, because a new fork has to copy each memory
page that it touches.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pliant.faults import identify
from pliant.nodectl.host import cgroup, memory_limit, procfs
from pliant.nodectl.shim.event_loop import connect_unix, open_directory
from pliant.nodectl.shim.rank_fork_exec import become_subreaper, set_process_name
from pliant.nodectl.shim.shim import Shim
from pliant.nodectl.world_folder import StartRequest, WorldFolder

#: The controller's socket, in the state folder of the node.
SOCKET_NAME = "node.sock"

#: The process name of a shim that waits for a world.
IDLE_NAME = b"idle shim"

_MAX_PATH = 1 << 16


def main(orders: socket.socket) -> None:
    """Run one world (set of ranks) after the other as their shim, until the launcher has ended.

    This is the main function of a fork of the launcher, which sends the folders of the worlds.
    """
    os.setsid()
    become_subreaper()
    identity = procfs.ProcessIdentity.of(os.getpid())
    assert identity is not None
    try:
        while directory := orders.recv(_MAX_PATH):
            set_process_name(b"shim")
            _run_world(WorldFolder(Path(os.fsdecode(directory))), identity)
            set_process_name(IDLE_NAME)
            orders.send(b"done")
    except ConnectionError:
        pass
    cgroup.leave()  # the launcher, which would do it, has ended


def _run_world(spool: WorldFolder, identity: procfs.ProcessIdentity) -> None:
    if not spool.claim(identity):
        return  # a repeated order: the world has a shim
    node = open_directory(spool.directory.parent.parent)
    try:
        request = spool.request()
        identify(job=request.job, role="join" if request.resize else "start")
        connect = partial(connect_unix, node, SOCKET_NAME)
        with _memory_limited(request, node):
            if request.max_tasks:
                cgroup.limit_tasks(identity, request.max_tasks)
            Shim(_relative_to_node(spool, node), request, connect, identity).run()
    finally:
        os.close(node)


@contextmanager
def _memory_limited(request: StartRequest, node: int) -> Iterator[None]:
    """Within this context, keep this process in the group that limits the memory of the job.

    If the job has no memory limit, the context does nothing.
    """
    if not request.memory_bytes:
        yield
        return
    name = memory_limit.group_name(request.job, request.run, node)
    memory_limit.enter(name, request.memory_bytes)
    try:
        yield
    finally:
        memory_limit.leave(name)


def _relative_to_node(spool: WorldFolder, node: int) -> WorldFolder:
    """Return ``spool`` with a path that goes through ``node``, a descriptor of the state folder.

    The state folder may be moved while ranks run. With its old path the shim could not record
    how ranks end. A later controller would find no record, and report that the shim was killed.
    """
    state = spool.directory.parent.parent
    return WorldFolder(Path(f"/proc/self/fd/{node}") / spool.directory.relative_to(state))
