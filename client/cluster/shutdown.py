"""Take a cluster on this machine down: first the jobs, then the daemons, then leftovers."""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pliant.client.client_errors import NoServerError, RequestError
from pliant.client.cluster import local_cluster, process_table
from pliant.client.cluster.daemons import Daemon, wait_until_gone
from pliant.client.cluster.local_cluster import (
    ADDRESS,
    DOWN_REASON,
    STOP_TIMEOUT_S,
    LocalCluster,
    Report,
)
from pliant.client.connection import Connection
from pliant.client.paths import SOCKET
from pliant.core.support.plural import plural

_CANCEL_TIMEOUT_S = 30.0
#: Seconds between SIGTERM and SIGKILL.
_GRACE_S = 2.0
#: Seconds after which a full disk is not waited for any longer.
_FULL_DISK_S = 2.0
#: The server's database needs a few pages of 4 KiB to store anything.
_MIN_FREE_BYTES = 32 * 1024
_HOLDS_PROCESSORS = {"STARTING", "RUNNING", "ADAPTING", "COMPLETING"}


@dataclass(frozen=True)
class EndedJobs:
    """The jobs that had to be ended by signals when a cluster was taken down, and why.

    The server could not end these jobs, or their processes still ran when the server had ended.
    """

    jobs: list[int]
    #: Whether the server had cancelled the jobs that it knew of.
    cancelled: bool
    #: Whether the disk of the state directory is full, so that no server can store a cancellation.
    disk_full: bool = False
    #: What failed on other hosts.
    errors: tuple[str, ...] = ()


def stop(cluster: LocalCluster, report: Report, *, keep_jobs: bool = False) -> EndedJobs:
    """Take a cluster down: cancel its jobs, end its daemons, and clear the run folder.

    Args:
        cluster: the cluster.
        report: called with a text that says what is being done.
        keep_jobs: whether jobs keep running; then they are not cancelled.

    Returns:
        The jobs whose processes had to be ended without the server, and failures on other hosts.
    """
    cancelled = not keep_jobs and _cancel_jobs(cluster, report)
    server, *controllers = cluster.all_daemons()
    _stop_server(cluster, server, report)
    disk_full = _is_full(cluster.state)
    errors = cluster.stop_nodes(report, keep_jobs=keep_jobs)
    ended = [] if keep_jobs else _end_jobs(cluster)
    _end_controllers(controllers, report)
    for name in (SOCKET, ADDRESS):
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(os.path.join(cluster.run, name))
    return EndedJobs(ended, cancelled, disk_full, tuple(errors))


def jobs_with_processes(cluster: LocalCluster) -> list[int]:
    """Return the ids of the jobs that have processes on this machine, found without the server."""
    found = (process_table.environment(pid) for pid in process_table.find(cluster.is_job_process))
    return sorted({int(env["PLIANT_JOB"]) for env in found if "PLIANT_JOB" in env})


def end_remaining_processes(cluster: LocalCluster, report: Report) -> list[str]:
    """End the job processes that have lost their shim, and record their exits.

    A shim is the process that starts the ranks of a job on a node. A process that has changed its
    session, its parent and its environment can be found only through the records of its node, so
    the controller program is run for each node.

    Returns:
        The nodes on which processes are still left.
    """
    if nodes := nodes_with_unfinished_jobs(cluster):
        report(f"ending what is left of jobs on {plural(len(nodes), 'node')}")
    for node in nodes:
        with open(cluster.node_file(node, "nodectl.log"), "ab") as log:
            subprocess.run(
                [*local_cluster.CONTROLLER, "--end-jobs", "--name", node],
                env=cluster.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )
    return nodes_with_unfinished_jobs(cluster)


def nodes_with_unfinished_jobs(cluster: LocalCluster) -> list[str]:
    """Return the nodes that have records of job processes whose end has not been recorded."""
    found = glob.glob(os.path.join(glob.escape(cluster.state), "node-*", "spool", "*", "token"))
    return sorted({path.split(os.sep)[-4].removeprefix("node-") for path in found})


def end_leftovers(cluster: LocalCluster, *, keep_jobs: bool = False) -> list[int]:
    """End the remaining processes of a cluster, also those that its state directory does not list.

    With ``keep_jobs``, only daemons are ended.

    Returns:
        The processes that are still there.
    """
    return process_table.terminate(
        process_table.find(cluster.is_daemon if keep_jobs else cluster.owns), _GRACE_S
    )


def _end_jobs(cluster: LocalCluster) -> list[int]:
    """End the processes of jobs that could not be cancelled, while controllers record the exits.

    The shims, which have started these processes, get SIGTERM first. They then record that the
    jobs were ended by a signal, clean up and exit. Return the ids of these jobs.
    """
    if jobs := jobs_with_processes(cluster):
        for pid in process_table.find(cluster.is_launcher_or_shim):
            process_table.send_signal(pid, signal.SIGTERM)
        process_table.wait_gone(process_table.find(cluster.is_job_process), _GRACE_S)
        process_table.terminate(process_table.find(cluster.is_job_process), _GRACE_S)
    return jobs


def _stop_server(cluster: LocalCluster, server: Daemon, report: Report) -> None:
    if server.running_pid():
        report("stopping the server")
        try:
            with Connection(cluster.run, timeout_s=STOP_TIMEOUT_S) as link:
                link.request("stop")
            wait_until_gone([server], STOP_TIMEOUT_S)
        except (NoServerError, RequestError):
            pass  # it is asked with a signal next
    server.end(STOP_TIMEOUT_S)


def _end_controllers(controllers: list[Daemon], report: Report) -> None:
    running = [pid for daemon in controllers if (pid := daemon.running_pid())]
    if running:
        report(f"stopping {plural(len(running), 'node controller')}")
        process_table.terminate(running, STOP_TIMEOUT_S)
    for daemon in controllers:
        daemon.end(0.0)


def _cancel_jobs(cluster: LocalCluster, report: Report) -> bool:
    """Drain all nodes, so that no job starts, and cancel the running jobs.

    Returns:
        False if no server answers or if its disk is full, so that it cannot cancel jobs.
    """
    try:
        with Connection(cluster.run, timeout_s=5) as link:
            if not _active(link):
                return True
            for node in link.request("nodes")["nodes"]:
                if str(node["state"]).upper() == "UP":
                    _request_if_possible(link, "drain", node=node["name"], reason=DOWN_REASON)
            deadline = time.monotonic() + _CANCEL_TIMEOUT_S
            asked: set[int] = set()
            full_since = None
            while (active := _active(link)) and time.monotonic() < deadline:
                # A server whose disk is full stores nothing, so it cancels nothing.
                full_since = (full_since or time.monotonic()) if _is_full(cluster.state) else None
                if full_since is not None and time.monotonic() > full_since + _FULL_DISK_S:
                    return False
                if new := [number for number in active if number not in asked]:
                    report(f"cancelling {plural(len(new), 'job')}")
                    _request_if_possible(link, "cancel", ids=new)
                    asked.update(new)
                time.sleep(0.05)
    except (NoServerError, RequestError):
        return False  # no jobs to cancel; their processes are ended with the rest
    return True


def _is_full(folder: str) -> bool:
    """Return whether the disk of a folder has no space left for this user."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _MIN_FREE_BYTES


def _active(link: Connection) -> list[int]:
    jobs: list[dict[str, Any]] = link.request("jobs", ids=None, all=False)["jobs"]
    # An array holds no processors, its tasks do.
    tasks_and_jobs = (job for job in jobs if "array" not in job)
    return [int(job["id"]) for job in tasks_and_jobs if job["state"] in _HOLDS_PROCESSORS]


def _request_if_possible(link: Connection, op: str, **fields: Any) -> None:
    try:
        link.request(op, **fields)
    except RequestError:
        pass  # the processes are ended later anyway
