"""A cluster of one user whose nodes are reached over SSH."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pliant.client.client_errors import ClientError
from pliant.client.cluster.cluster_spec import ClusterSpec
from pliant.client.cluster.host_list import Host
from pliant.client.cluster.local_cluster import START_TIMEOUT_S, Report
from pliant.client.cluster.remote.host_admission import joining_port
from pliant.client.cluster.remote.node_start_message import NodeStartMessage
from pliant.client.cluster.remote.remote_cluster import (
    RemoteCluster,
    host_of,
    is_loopback,
    listen_address,
)
from pliant.client.cluster.remote.ssh_nodes import NOT_STARTED, Done, SshNodes
from pliant.client.ssh.session import HostError
from pliant.core.support.plural import plural
from pliant.protos.address import TcpAddress
from pliant.protos.daemons.atomic_files import write_whole

#: In the state folder: the hosts on which something may have to be ended.
_HOSTS_FILE = "remote-hosts.json"
#: Seconds between looks at hosts whose nodes do not come up.
_EXPLAIN_EVERY_S = 5.0


class SshCluster(RemoteCluster):
    """A cluster whose nodes are reached over SSH."""

    def __init__(self, state: str, run: str, spec: ClusterSpec | None = None) -> None:
        """Use the cluster in these directories.

        Args:
            state: the state directory of the cluster.
            run: its run directory, which has the server's socket.
            spec: its specification; None for the one that is stored in the state directory.
        """
        self._listen = self._own_address = ""
        #: Hosts that failed before their nodes were started.
        self._failed: dict[str, HostError] = {}
        super().__init__(state, run, spec)

    def _listen_address(self, spec: ClusterSpec) -> str:
        return self._listen

    def prepare(self, report: Report) -> None:
        """Find the address at which the hosts reach the server; skipped if the server runs already.

        Raises:
            ClientError: no host can be reached.
        """
        if self.daemons[0].running_pid():
            return
        hosts = self.remote.hosts
        report(f"connecting to {plural(len(hosts), 'host')}")
        routes, errors = self._nodes().find_routes(hosts, _progress(report, "reached", len(hosts)))
        self._failed = {error.host: error for error in errors}
        if not routes:
            raise ClientError(_join("no host can be used", errors))
        # A node on this machine is reached by the others at the address of the network, too.
        own = set(routes.values())
        own = {each for each in own if not is_loopback(each)} or own
        self._own_address = min(own)
        self._listen = listen_address(self.remote.address, own)
        self._build()

    def wait_up(self, report: Report, timeout_s: float = START_TIMEOUT_S) -> list[str]:
        """Start the nodes that are not connected, and wait until they have registered.

        Returns:
            A text for each node that failed.
        """
        self._wait_for_nodes([], report, timeout_s)
        here = self.registered() or set()
        hosts = [
            host
            for host in self.remote.hosts
            if host.name not in here and host.name not in self._failed
        ]
        known = self._saved_hosts()
        self._save_hosts([*known, *hosts])
        report(f"starting {plural(len(hosts), 'node')}")
        done = _progress(report, "started", len(hosts))
        started, errors = self._nodes().start(hosts, self._make_message, done)
        unused = {error.host for error in errors if error.step in NOT_STARTED}
        self._save_hosts([*known, *(host for host in hosts if host.name not in unused)])
        errors += self._wait_registered(
            [host for host in hosts if host.name in started], report, timeout_s
        )
        errors = [*self._failed.values(), *errors]
        if not self.registered():
            raise ClientError(_join("no node came up", errors))
        return [str(error) for error in errors]

    def _wait_registered(
        self, hosts: Sequence[Host], report: Report, timeout_s: float
    ) -> list[HostError]:
        """Wait until nodes have registered; return an error for each that does not.

        The controllers of these nodes were started before.
        """
        deadline = time.monotonic() + timeout_s
        look_at = time.monotonic() + _EXPLAIN_EVERY_S
        waiting, errors = list(hosts), list[HostError]()
        while waiting:
            here = self.registered() or set()
            waiting = [host for host in waiting if host.name not in here]
            report(f"{len(here)} of {plural(len(self.spec.node_names), 'node')} up")
            late = time.monotonic() >= deadline
            if waiting and (late or time.monotonic() >= look_at):
                for error in self._nodes().explain(waiting, all_of_them=late):
                    errors.append(error)
                    waiting = [host for host in waiting if host.name != error.host]
                look_at = time.monotonic() + _EXPLAIN_EVERY_S
            time.sleep(0.05)
        return errors

    def _make_message(self, host: Host, own_address: str) -> NodeStartMessage:
        if is_loopback(own_address):
            own_address = self._own_address or own_address
        address = host_of(self.remote.address) or own_address
        server = TcpAddress(address.strip("[]"), joining_port(self.run))
        slots = ("--slots", str(host.slots)) if host.slots else ()
        return NodeStartMessage(
            host.name,
            self.admission.cluster_id,
            self.admission.make_token(host.name, server, host.slots),
            str(server),
            (*slots, *self._node_options()),
            self.remote.node_dir,
        )

    def _nodes(self) -> SshNodes:
        return SshNodes(self.remote, self.admission.cluster_id)

    # -- down

    def has_other_hosts(self) -> bool:
        """Return whether nodes on other hosts were started, and not yet ended."""
        return bool(self._saved_hosts())

    def undo_start(self) -> None:
        """End all daemons that this process has started, also the nodes on other hosts."""
        started = self.daemons[0].process is not None
        super().undo_start()
        if started:
            self.stop_nodes(lambda _: None, keep_jobs=False)

    def stop_nodes(self, report: Report, *, keep_jobs: bool) -> list[str]:
        """End the nodes on all hosts that may have one; return a text for each failure.

        Args:
            report: called with a text that says what is being done.
            keep_jobs: whether the jobs on these nodes keep running.
        """
        hosts = self._saved_hosts()
        if not hosts or not self.admission.exists:
            return []
        report(f"ending {plural(len(hosts), 'node')}")
        done = _progress(report, "ended", len(hosts))
        errors = self._nodes().stop(hosts, done, keep_jobs=keep_jobs)
        if not keep_jobs:
            self.admission.revoke([host.name for host in hosts])
            failed = {error.host for error in errors}
            self._save_hosts([host for host in hosts if host.name in failed])
        return [str(error) for error in errors]

    def _saved_hosts(self) -> list[Host]:
        try:
            with open(os.path.join(self.state, _HOSTS_FILE), encoding="utf-8") as file:
                return [Host(**each) for each in json.load(file)]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError):
            return list(self.remote.hosts)  # all that are known

    def _save_hosts(self, hosts: Sequence[Host]) -> None:
        unique = {host.name: host for host in hosts}
        text = json.dumps([asdict(host) for host in unique.values()])
        write_whole(Path(self.state, _HOSTS_FILE), text)


def _progress(report: Report, what: str, total: int) -> Done:
    count = 0

    def done(name: str, found: object) -> None:
        nonlocal count
        count += 1
        state = "failed" if isinstance(found, HostError) else what
        report(f"{name} {state} ({count} of {total})")

    return done


def _join(what: str, errors: Sequence[HostError]) -> str:
    return "\n".join([what, *map(str, errors)])
