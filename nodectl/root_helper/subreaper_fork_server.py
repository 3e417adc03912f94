"""Fork the subreapers of worlds and their shims: ``subreaper_fork_server RECORDS SHIMS``.

A new interpreter needs tens of milliseconds for its imports, and no job should wait for them. So
this process loads all modules of a shim once, and its forks share that memory: a waiting fork costs
little. The helper executes this program instead of forking itself, so the process holds nothing of
the helper: no content of an order, no descriptor. It reads nothing but the helper's requests for
another subreaper, and ends when the helper ends.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from pathlib import Path

from pliant.nodectl.host.cgroup_hierarchies import find_bases
from pliant.nodectl.root_helper.descriptors import CHANNEL_FD, receive
from pliant.nodectl.root_helper.world_subreaper import run_subreaper
from pliant.nodectl.shim.rank_fork_exec import set_process_name


def main(arguments: list[str]) -> int:
    """Fork subreapers (the parents of jobs' processes) on request, until the helper has ended.

    Return the exit code.
    """
    records, shims = map(Path, arguments)
    os.set_inheritable(CHANNEL_FD, False)
    set_process_name(b"fork server")
    os.umask(0o077)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    find_bases()
    gc.collect()
    gc.freeze()  # a collection would write to each object, and so copy the pages that forks share
    requests = socket.socket(fileno=CHANNEL_FD)
    while True:
        data, handles = receive(requests, 1, 1)
        if not data:
            return 0
        (handle,) = handles
        pid = os.fork()
        if pid == 0:
            # The helper is a subreaper: the second fork makes the subreaper its child.
            if os.fork() != 0:
                os._exit(0)
            run_subreaper(socket.socket(fileno=handle), records, shims)
        os.close(handle)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
