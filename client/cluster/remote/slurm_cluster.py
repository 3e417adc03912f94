"""A cluster of one user in an allocation of Slurm."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.cluster import process_table
from pliant.client.cluster.cluster_spec import ClusterSpec
from pliant.client.cluster.daemons import Daemon
from pliant.client.cluster.local_cluster import START_TIMEOUT_S, Report
from pliant.client.cluster.remote import allocation, slurm_nodes
from pliant.client.cluster.remote.remote_cluster import (
    RemoteCluster,
    host_of,
    is_loopback,
    listen_address,
)
from pliant.core.support.plural import plural
from pliant.protos.address import TcpAddress, local_address

#: The daemon has this long to save jobs and end the nodes.
_ALLOCATION_END_S = 90.0


class SlurmCluster(RemoteCluster):
    """A cluster on the nodes of the Slurm allocation in which this process runs."""

    def __init__(self, state: str, run: str, spec: ClusterSpec | None = None) -> None:
        """Use the cluster in these directories.

        Args:
            state: the state directory of the cluster.
            run: its run directory, which has the server's socket.
            spec: its specification; None for the one that is stored in the state directory.
        """
        self._address = ""
        super().__init__(state, run, spec)

    def _listen_address(self, spec: ClusterSpec) -> str:
        return listen_address(self.remote.address, {self._address}) if self._address else ""

    def prepare(self, report: Report) -> None:
        """Find the address of this machine at which the nodes can reach it."""
        if self.daemons[0].running_pid():
            return
        report(f"looking for {plural(len(self.remote.hosts), 'node')} of Slurm")
        self._address = host_of(self.remote.address) or self._find_address()
        self._build()

    def _find_address(self) -> str:
        nodes = allocation.addresses_of(self.remote.hosts)
        found = {local_address([str(TcpAddress(node, 1))]) for node in nodes} - {""}
        remote = {address for address in found if not is_loopback(address)}
        # With this machine as the only node, it is its own address.
        if len(remote or found) != 1:
            raise ClientError(
                "--inside-slurm: this machine reaches the nodes of the allocation at several "
                f"addresses or none ({', '.join(sorted(found)) or 'none'}): name the one at which "
                "they reach it with --address HOST"
            )
        return (remote or found).pop()

    def is_daemon(self, pid: int) -> bool:
        """Return whether a process is a daemon of this cluster.

        The daemon of the allocation (`slurm_nodes`) is one of them.
        """
        return super().is_daemon(pid) or (
            process_table.program(pid) == slurm_nodes.MODULE and self._belongs_here(pid)
        )

    def _node_daemons(self) -> list[Daemon]:
        settings = slurm_nodes.SlurmDaemonSettings(
            self.remote.slurm_job,
            self.remote.hosts,
            self._address,
            self._node_options(),
            self.remote.node_dir,
            self.remote.save_before_s,
        )
        command = [sys.executable, "-P", "-m", slurm_nodes.MODULE, settings.encode()]
        log, lock = (os.path.join(self.state, f"allocation.{kind}") for kind in ("log", "lock"))
        pid_file = self._pid_file("allocation")
        return [Daemon("allocation", command, slurm_nodes.MODULE, "", pid_file, log, lock)]

    def wait_up(self, report: Report, timeout_s: float = START_TIMEOUT_S) -> list[str]:
        """Wait until each node has registered or failed; return a text for each failed node."""
        deadline, reported = time.monotonic() + timeout_s, ""
        names = set(self.spec.node_names)
        while True:
            for daemon in self.daemons:
                daemon.check()
            self._wait_for_stopped()
            errors, here = self._errors(), (self.registered() or set()) & names
            text = f"{len(here)} of {plural(len(names), 'node')} up"
            if text != reported:
                report(text)
                reported = text
            late = time.monotonic() >= deadline
            if late:
                errors |= dict.fromkeys(names - here - errors.keys(), f"not up in {timeout_s:g} s")
            if here | errors.keys() >= names:
                break
            time.sleep(0.05)
        warnings = [f"{name}: {text}" for name, text in sorted(errors.items())]
        if not here:
            raise ClientError("\n".join(["no node came up", *warnings]))
        return warnings

    def end_reason(self) -> str:
        """Return why the daemon in the Slurm allocation has ended the cluster; empty if it has not.

        This daemon is the program `slurm_nodes`.
        """
        return str(self.status().get("ended", ""))

    def lost_nodes_reason(self) -> str:
        """Return why all nodes are lost, if the allocation's daemon has failed; else empty."""
        daemon = self.daemons[1]
        if daemon.running_pid() or self.end_reason():
            return ""
        return f"the daemon of the allocation has ended, and all nodes with it: see {daemon.log}"

    def before_down(self, number: int) -> None:
        """Save the jobs if the signal is SIGTERM: Slurm sends it when the allocation ends soon."""
        if number == signal.SIGTERM:
            self.daemons[1].end(_ALLOCATION_END_S)

    def _errors(self) -> dict[str, str]:
        return dict(self.status().get("errors", {}))

    def status(self) -> dict[str, Any]:
        """Return the content of the allocation daemon's status file; empty if there is no file."""
        try:
            path = os.path.join(self.state, slurm_nodes.STATUS_FILE)
            with open(path, encoding="utf-8") as file:
                return dict(json.load(file))
        except (OSError, ValueError):
            return {}

    def stop_nodes(self, report: Report, *, keep_jobs: bool) -> list[str]:
        """Make the daemon of the allocation end the nodes, and wait until it has ended.

        Returns:
            An empty list, because failures are not reported one by one.

        Raises:
            UsageError: ``keep_jobs`` is true, but jobs end with the nodes of an allocation.
        """
        if keep_jobs:
            raise UsageError(
                "--keep-jobs: the nodes of an allocation end with `srun`, and their jobs with them"
            )
        daemon = self.daemons[1]
        if daemon.running_pid():
            report(f"ending {plural(len(self.remote.hosts), 'node')}")
            daemon.end(_ALLOCATION_END_S)
        if self.admission.exists:
            self.admission.revoke(self.spec.node_names)
        return []
