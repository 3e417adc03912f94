"""``pliant up`` and ``pliant down``: a whole cluster of one user."""

from __future__ import annotations

import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import errno
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from pliant.client.client_errors import ClientError
from pliant.client.cluster import process_table
from pliant.client.cluster.cluster_spec import ClusterSpec, RemoteSpec, load_spec, save_spec
from pliant.client.cluster.daemons import describe_code
from pliant.client.cluster.dashboard_process import DashboardProcess
from pliant.client.cluster.local_cluster import LocalCluster
from pliant.client.cluster.mpi_library import LibraryProbe
from pliant.client.cluster.shutdown import (
    EndedJobs,
    end_leftovers,
    end_remaining_processes,
    jobs_with_processes,
    nodes_with_unfinished_jobs,
    stop,
)
from pliant.client.cluster.up_options import add_state_dir, requested_spec, up_parser
from pliant.client.paths import run_dir, state_dir
from pliant.client.terminal.interrupts import Interrupted, Interrupts
from pliant.client.terminal.output import (
    INTERRUPTED,
    Parser,
    describe,
    discard_stdout,
    print_error,
    run_command,
)
from pliant.core.support.plural import plural


def up(argv: Sequence[str] | None = None) -> int:
    """Start a cluster of your own: a server and node controllers, here or on other hosts."""
    options = up_parser().parse_args(argv)
    return run_command("pliant up", lambda: _up(options))


def down(argv: Sequence[str] | None = None) -> int:
    """End a cluster of your own and its running jobs."""
    parser = Parser(
        prog="pliant down",
        description="Cancel the running jobs and end the server and the node controllers. "
        "Jobs that wait are kept for the next `pliant up`.",
        epilog="exit codes: 0 all is gone, 1 something is left, 2 wrong usage",
    )
    parser.add_argument("--keep-jobs", action="store_true", help="let running jobs go on")
    add_state_dir(parser)
    options = parser.parse_args(argv)
    return run_command("pliant down", lambda: _down(options))


def _directories(options: argparse.Namespace) -> tuple[str, str]:
    """Return the state and the run directory."""
    if options.state_dir:
        state = os.path.abspath(os.path.expanduser(options.state_dir))
        return state, os.path.join(state, "run")
    return state_dir(), run_dir()


def open_cluster(state: str, run: str, spec: ClusterSpec) -> LocalCluster:
    """Return the cluster that a specification describes, on this machine or on other hosts."""
    if spec.remote is None:
        return LocalCluster(state, run, spec)
    from pliant.client.cluster.remote.slurm_cluster import SlurmCluster
    from pliant.client.cluster.remote.ssh_cluster import SshCluster

    return (SlurmCluster if spec.remote.slurm_job else SshCluster)(state, run, spec)


class _Progress:
    """Shows progress: on a terminal as a line that is rewritten, otherwise one line per change.

    An stderr that cannot be written does not matter: the work continues without these lines.
    """

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._last = ""

    def __call__(self, text: str) -> None:
        if text == self._last:
            return
        self._last = text
        self._write(f"\r\x1b[K{text}" if self._terminal else f"{text}\n")

    def end(self) -> None:
        """Clear the line of progress on a terminal."""
        if self._terminal:
            self._write("\r\x1b[K")

    @staticmethod
    def _write(text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()


def _up(options: argparse.Namespace) -> int:
    state, run = _directories(options)
    known = load_spec(state) or ClusterSpec()
    # Whether nodes are on other hosts must be known first. The rest is read under the lock.
    cluster = open_cluster(state, run, replace(known, remote=requested_spec(options, known).remote))
    progress, is_up, end_code = _Progress(), False, 0
    dashboard: DashboardProcess | None = None
    with Interrupts() as interrupts, LibraryProbe() as library:
        if not options.detach:
            process_table.adopt_orphans()
        try:
            warnings = _bring_up(cluster, options, interrupts, progress)
            is_up = True
            if options.dashboard:
                dashboard = DashboardProcess(cluster.state, cluster.run)
                warnings += _print_addresses(dashboard)
            if options.detach:
                # From here on neither a signal nor an output that cannot be written ends daemons.
                interrupts.ignore()
                cluster.detach()
            else:
                _print_if_possible(cluster, options, [*warnings, *library.warnings()])
                end_code = _wait_for_end(cluster)
        except Interrupted:
            interrupts.ignore()
            progress.end()
            cluster.before_down(interrupts.number)
            if options.detach:
                _undo_start(cluster)
                return INTERRUPTED
        if options.detach:
            _print_up(cluster, options, [*warnings, *library.warnings()])
            return 0
        if dashboard is not None:
            dashboard.stop()
        with _storage_errors_explained(cluster):
            code = _take_down(cluster, progress)
        process_table.reap_children()
        return (code or end_code) if is_up else INTERRUPTED


def _print_addresses(dashboard: DashboardProcess) -> list[str]:
    """Print the dashboard's addresses; return a warning if the dashboard did not start."""
    try:
        lines = dashboard.addresses()
    except ClientError as error:
        return [str(error)]
    with suppress(OSError):
        print("\n".join(lines), flush=True)
    return []


def _bring_up(
    cluster: LocalCluster, options: argparse.Namespace, interrupts: Interrupts, progress: _Progress
) -> list[str]:
    """Start the daemons that do not run, and wait until they are up; on failure, end them again.

    Returns:
        A text for each missing node, and for each node of an earlier cluster that could not be
        removed from the server's list.

    Raises:
        ClientError: the cluster did not come up, or a directory is unusable.
    """
    try:
        with _storage_errors_explained(cluster), cluster.locked():
            cluster.reload_spec()  # another `pliant up` may have run while this one waited
            cluster.check_owner()
            _check_takeover(cluster, options)
            spec = requested_spec(options, cluster.spec)
            if spec != cluster.spec or not cluster.running():
                cluster.check(spec)
            cluster.configure(spec)
            cluster.prepare(progress)
            if spec.remote is not None:
                save_spec(cluster.state, spec)  # `pliant down` finds the hosts even after a kill
            with interrupts.shielded():
                cluster.start_missing()
            missing = cluster.wait_up(progress)
            save_spec(cluster.state, spec)
            kept = cluster.remove_surplus()
    except (ClientError, OSError):
        interrupts.ignore()
        progress.end()
        _undo_start(cluster)
        raise
    progress.end()
    return [*missing, *kept]


def _check_takeover(cluster: LocalCluster, options: argparse.Namespace) -> None:
    """Check that `pliant up` in the foreground finds no running cluster: Ctrl-C would end its jobs.

    Raises:
        ClientError: the cluster is up already.
    """
    if options.detach or not cluster.is_up():
        return
    where = f" --state-dir {options.state_dir}" if options.state_dir else ""
    raise ClientError(
        f"a cluster already runs in {cluster.state}: watch it with `jobstat -w`, end it with "
        f"`pliant down{where}`, or start what is missing of it with `pliant up{where} --detach`"
    )


def _undo_start(cluster: LocalCluster) -> None:
    with _storage_errors_explained(cluster):
        cluster.undo_start()


@contextmanager
def _storage_errors_explained(cluster: LocalCluster) -> Iterator[None]:
    """Within this context, replace each OSError by an error that names directory and remedy."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of stdout or stderr has ended: no fault of a directory
    except OSError as error:
        raise _unusable(cluster, error) from None


def _print_up(cluster: LocalCluster, options: argparse.Namespace, warnings: list[str]) -> None:
    for text in warnings:
        _report(f"warning: {text}")
    print(_up_message(cluster, options), flush=True)


def _print_if_possible(
    cluster: LocalCluster, options: argparse.Namespace, warnings: list[str]
) -> None:
    """Print that the cluster is up; ignore a closed standard output."""
    try:
        _print_up(cluster, options, warnings)
    except OSError as error:
        discard_stdout()
        if not isinstance(error, BrokenPipeError):
            _report(describe(error))


def _report(text: str) -> None:
    """Print to stderr; ignore an error of writing, because the cluster stays up."""
    with suppress(OSError):
        print_error("pliant up", text)


def _up_message(cluster: LocalCluster, options: argparse.Namespace) -> str:
    lines = [f"up: {cluster.describe()}; state and logs in {cluster.state}"]
    if options.state_dir:
        lines.append(
            f"export PLIANT_STATE_DIR={cluster.state} PLIANT_RUN_DIR={cluster.run}  # for jobsub"
        )
    if not options.detach:
        lines.append("Ctrl-C takes it down")
    return "\n".join(lines)


def _wait_for_end(cluster: LocalCluster) -> int:
    """Wait for Ctrl-C, the end of all daemons or of all nodes, and report daemons that end.

    Returns:
        The exit code: 0 if the cluster has ended as planned, such as at the end of its allocation,
        1 if all nodes have ended and none can come back.

    Raises:
        ClientError: all daemons have ended for another reason.
    """
    reported: set[str] = set()
    while True:
        reason = cluster.end_reason()
        for daemon in cluster.daemons:
            if daemon.name not in reported and not daemon.running_pid():
                code = daemon.process.returncode if daemon.process else None
                how = f" with {describe_code(code)}" if code is not None else ""
                if not reason:
                    _report(f"{daemon.name} ended{how}: see {daemon.log}")
                reported.add(daemon.name)
        if lost := cluster.lost_nodes_reason():
            _report(lost)
            return 1
        if len(reported) == len(cluster.daemons):
            cluster.end_own_daemons()
            if reason:
                with suppress(OSError):
                    print(f"down: {reason}", flush=True)
                return 0
            others = "; jobs on other hosts go on, and the next `pliant up` finds them"
            raise ClientError(
                f"all daemons have ended{others if cluster.has_other_hosts() else ''}"
            )
        time.sleep(0.25)


def _take_down(cluster: LocalCluster, progress: _Progress, *, keep_jobs: bool = False) -> int:
    with cluster.locked():
        ended = stop(cluster, progress, keep_jobs=keep_jobs)
        left = end_leftovers(cluster, keep_jobs=keep_jobs)
        unable = [] if keep_jobs else end_remaining_processes(cluster, progress)
        cluster.release_run_dir()
    progress.end()
    _report_ended_jobs(ended, cluster.state)
    for text in ended.errors:
        print_error("pliant down", text)
    for node in unable:
        log = cluster.node_file(node, "nodectl.log")
        print_error("pliant down", f"jobs of node {node} could not all be ended: see {log}")
    for pid in left:
        print_error(
            "pliant down",
            f"process {pid} is still there: {' '.join(process_table.command_line(pid))}",
        )
    return 1 if left or unable or ended.errors else 0


def _report_ended_jobs(ended: EndedJobs, state: str) -> None:
    """Print which jobs were ended by signals to their processes, and why."""
    if not ended.jobs:
        return
    jobs, listed = plural(len(ended.jobs), "job"), _join(ended.jobs)
    if ended.disk_full:
        print_error(
            "pliant down",
            f"{jobs} could not be cancelled ({listed}): the disk of {state} is full, so their "
            "processes were ended; make room there before the next `pliant up`, which tells how",
        )
    elif ended.cancelled:
        print_error(
            "pliant down",
            f"the server cancelled what ran, but processes of {jobs} did not go ({listed}), so "
            "they were ended; the next `pliant up` tells how",
        )
    else:
        print_error(
            "pliant down",
            f"{jobs} could not be cancelled ({listed}): no server answered, so their processes "
            "were ended; the next `pliant up` tells how",
        )


def _down(options: argparse.Namespace) -> int:
    state, run = _directories(options)
    # The number of nodes does not matter: daemons are found by their files in the directory.
    cluster = open_cluster(state, run, ClusterSpec(nodes=0, remote=_saved_remote(state)))
    if not os.path.isdir(cluster.state) and not process_table.find(cluster.owns):
        print("down: nothing was up")
        return 0
    cluster.check_owner()
    with Interrupts() as interrupts:
        interrupts.ignore()
        was = (
            cluster.running()
            or process_table.find(cluster.owns)
            or nodes_with_unfinished_jobs(cluster)
            or cluster.has_other_hosts()
        )
        with _storage_errors_explained(cluster):
            code = _take_down(cluster, _Progress(), keep_jobs=options.keep_jobs)
    jobs = jobs_with_processes(cluster) if options.keep_jobs else []
    if jobs:
        goes = "goes" if len(jobs) == 1 else "go"
        print(
            f"down: {plural(len(jobs), 'job')} {goes} on ({_join(jobs)}); "
            "the next `pliant up` has them"
        )
    elif code:
        print("down: not all is gone")
    elif options.keep_jobs and was and cluster.has_other_hosts():
        print("down: jobs on other hosts go on; the next `pliant up` has them")
    else:
        print("down: all is gone" if was else "down: nothing was up")
    return code


def _saved_remote(state: str) -> RemoteSpec | None:
    """Return the hosts in the saved specification; None if it names none or cannot be read."""
    try:
        spec = load_spec(state)
    except ClientError:
        return None
    return spec.remote if spec else None


def _join(jobs: list[int]) -> str:
    return ", ".join(map(str, jobs))


def _unusable(cluster: LocalCluster, error: OSError) -> ClientError:
    """Return an error for a file that cannot be used; its text names the file and the remedy."""
    path = os.fsdecode(error.filename or cluster.state)
    other = "name another directory with --state-dir or $PLIANT_STATE_DIR"
    remedy = f"make room, or {other}" if error.errno in {errno.ENOSPC, errno.EDQUOT} else other
    what = (error.strerror or str(error)).lower()
    if _is_file(cluster.state):
        path, what, remedy = cluster.state, "it is a file, not a directory", other
    elif _is_file(cluster.run):
        return ClientError(
            f"run directory: {cluster.run}: it is a file, not a directory; remove it, or name "
            "another directory with $PLIANT_RUN_DIR"
        )
    return ClientError(f"state directory: {path}: {what}; {remedy}")


def _is_file(path: str) -> bool:
    return os.path.exists(path) and not os.path.isdir(path)
