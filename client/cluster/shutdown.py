"""Taking a cluster on this machine down: jobs first, then its daemons, then whatever is left."""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pliant.client.cluster import local, process_table
from pliant.client.cluster.daemons import Daemon, wait_until_gone
from pliant.client.cluster.local import ADDRESS, DOWN_REASON, STOP_TIMEOUT_S, LocalCluster, Report
from pliant.client.connection import Connection
from pliant.client.errors import NoServerError, RequestError
from pliant.client.paths import SOCKET
from pliant.core.support.plural import plural

_CANCEL_TIMEOUT_S = 30.0
#: What is asked to end gets this long before it is killed.
_GRACE_S = 2.0
#: A disk that stays full for so long is not waited for.
_FULL_DISK_S = 2.0
#: The server's database needs a few pages of 4 KiB to store anything.
_MIN_ROOM_BYTES = 32 * 1024
_HOLDS_PROCESSORS = {"STARTING", "RUNNING", "ADAPTING", "COMPLETING"}


@dataclass(frozen=True)
class Ended:
    """The jobs whose processes were there still when the server was gone, and were ended."""

    jobs: list[int]
    #: Whether there was a server that had cancelled what it knew of.
    cancelled: bool
    #: Whether the disk of the state directory is full, so that no server can store a cancellation.
    disk_full: bool = False


def stop(cluster: LocalCluster, report: Report, *, keep_jobs: bool = False) -> Ended:
    """Cancel the jobs that run, end the daemons, remove what they leave in the run folder."""
    cancelled = not keep_jobs and _cancel_jobs(cluster, report)
    server, *controllers = cluster.everybody()
    _stop_server(cluster, server, report)
    disk_full = _is_full(cluster.state)
    ended = [] if keep_jobs else _end_jobs(cluster)
    _end_controllers(controllers, report)
    for name in (SOCKET, ADDRESS):
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(os.path.join(cluster.run, name))
    return Ended(ended, cancelled, disk_full)


def jobs_left(cluster: LocalCluster) -> list[int]:
    """Return the jobs of which processes run, whether there is a server or not."""
    found = (process_table.environment(pid) for pid in process_table.find(cluster.works))
    return sorted({int(env["PLIANT_JOB"]) for env in found if "PLIANT_JOB" in env})


def bury(cluster: LocalCluster, report: Report) -> list[str]:
    """Have nodes end what hides of worlds that nobody keeps any more, and note how they ended.

    Only what a node has noted of them tells of a process that left its session, its parent and its
    environment.

    Returns:
        The nodes that could not.
    """
    if nodes := unburied(cluster):
        report(f"ending what is left of jobs on {plural(len(nodes), 'node')}")
    for node in nodes:
        with open(cluster.node_file(node, "nodectl.log"), "ab") as log:
            subprocess.run(
                [*local.CONTROLLER, "--end-jobs", "--name", node],
                env=cluster.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )
    return unburied(cluster)


def unburied(cluster: LocalCluster) -> list[str]:
    """Return the nodes where a world has its secret still, which goes with the last of it."""
    found = glob.glob(os.path.join(glob.escape(cluster.state), "node-*", "spool", "*", "token"))
    return sorted({path.split(os.sep)[-4].removeprefix("node-") for path in found})


def sweep(cluster: LocalCluster, *, keep_jobs: bool = False) -> list[int]:
    """End what still belongs to a cluster, also what its state directory does not know of.

    Returns:
        The processes that are there in spite of it.
    """
    return process_table.end(
        process_table.find(cluster.leads if keep_jobs else cluster.owns), _GRACE_S
    )


def _end_jobs(cluster: LocalCluster) -> list[int]:
    """End the processes of jobs that nobody could cancel, while controllers note how they ended.

    Their shims are told first: they note that it was not the job's own doing. They then end by
    themselves, and clear away what they had.
    """
    if jobs := jobs_left(cluster):
        for pid in process_table.find(cluster.keeps_jobs):
            process_table.send(pid, signal.SIGTERM)
        process_table.wait_gone(process_table.find(cluster.works), _GRACE_S)
        process_table.end(process_table.find(cluster.works), _GRACE_S)
    return jobs


def _stop_server(cluster: LocalCluster, server: Daemon, report: Report) -> None:
    if server.running():
        report("stopping the server")
        try:
            with Connection(cluster.run, timeout_s=STOP_TIMEOUT_S) as link:
                link.request("stop")
            wait_until_gone([server], STOP_TIMEOUT_S)
        except (NoServerError, RequestError):
            pass  # it is asked with a signal next
    server.end(STOP_TIMEOUT_S)


def _end_controllers(controllers: list[Daemon], report: Report) -> None:
    running = [pid for daemon in controllers if (pid := daemon.running())]
    if running:
        report(f"stopping {plural(len(running), 'node controller')}")
        process_table.end(running, STOP_TIMEOUT_S)
    for daemon in controllers:
        daemon.end(0.0)


def _cancel_jobs(cluster: LocalCluster, report: Report) -> bool:
    """Cancel what runs, with all nodes drained so that nothing takes its place.

    Returns:
        Whether there was a server to do it, to the end.
    """
    try:
        with Connection(cluster.run, timeout_s=5) as link:
            if not _active(link):
                return True
            for node in link.request("nodes")["nodes"]:
                if str(node["state"]).upper() == "UP":
                    _try(link, "drain", node=node["name"], reason=DOWN_REASON)
            deadline = time.monotonic() + _CANCEL_TIMEOUT_S
            asked: set[int] = set()
            full_since = None
            while (active := _active(link)) and time.monotonic() < deadline:
                # A server without room stores nothing, and so it cancels nothing.
                full_since = (full_since or time.monotonic()) if _is_full(cluster.state) else None
                if full_since is not None and time.monotonic() > full_since + _FULL_DISK_S:
                    return False
                if new := [number for number in active if number not in asked]:
                    report(f"cancelling {plural(len(new), 'job')}")
                    _try(link, "cancel", ids=new)
                    asked.update(new)
                time.sleep(0.05)
    except (NoServerError, RequestError):
        return False  # no jobs to cancel; their processes are ended with the rest
    return True


def _is_full(folder: str) -> bool:
    """Return whether a folder's disk has no room left for a user's files."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _MIN_ROOM_BYTES


def _active(link: Connection) -> list[int]:
    jobs: list[dict[str, Any]] = link.request("jobs", ids=None, all=False)["jobs"]
    return [int(job["id"]) for job in jobs if job["state"] in _HOLDS_PROCESSORS]


def _try(link: Connection, op: str, **fields: Any) -> None:
    try:
        link.request(op, **fields)
    except RequestError:
        pass  # what cannot be done politely is done by ending processes
