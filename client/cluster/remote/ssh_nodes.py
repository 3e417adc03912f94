"""Start and end the nodes of a user's own cluster on hosts that are reached over SSH."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pliant.client.cluster.cluster_spec import RemoteSpec
from pliant.client.cluster.host_list import Host
from pliant.client.cluster.remote.node_agent import MODULE
from pliant.client.cluster.remote.node_start_message import NodeStartMessage, encode_start_messages
from pliant.client.ssh.parallel import on_hosts
from pliant.client.ssh.session import HostError, SshSession, connect
from pliant.client.ssh.target import parse_target

Done = Callable[[str, object], None]
#: The start message of a host, from its name and the address of this machine on the way to it.
MakeMessage = Callable[[Host, str], NodeStartMessage]

#: Starting Python on a slow shared file system takes most of it.
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 120.0
_SAME_PATH = (
    "install Pliant on the host under the same path as here, or name the Python of its "
    "installation with python=PATH in the file of hosts"
)
_REMEDIES = {
    "join": "the host must reach the server: check firewalls, or name another address of this "
    "machine with --address",
    "state folder": "name another folder with --node-dir",
}
#: Steps that fail before anything is done on a host.
NOT_STARTED = frozenset({"connect", "log in", "python"})
_COMMAND_NOT_FOUND = (126, 127)


class SshNodes:
    """Starts and ends node controllers on hosts by SSH, and finds out why some do not register."""

    def __init__(self, spec: RemoteSpec, cluster_id: str) -> None:
        self._spec, self._cluster_id = spec, cluster_id

    def find_routes(
        self, hosts: Sequence[Host], done: Done
    ) -> tuple[dict[str, str], list[HostError]]:
        """Find the address from which this machine reaches each host.

        Args:
            hosts: the hosts.
            done: called when a host is done, with its name and the address or the error.

        Returns:
            The addresses by name of the host, and an error for each host that cannot be reached.
        """

        def route(host: Host) -> str:
            with self._connect(host) as session:
                return session.route()[0]

        return on_hosts({host.name: host for host in hosts}, route, done=done)

    def start(
        self, hosts: Sequence[Host], make_message: MakeMessage, done: Done
    ) -> tuple[list[str], list[HostError]]:
        """Turn hosts into nodes by starting a controller on each.

        Args:
            hosts: the hosts.
            make_message: returns the message that makes a host a node, from the host and the
                address from which this machine reaches it.
            done: called when a host is done, with its name and None or the error.

        Returns:
            The names of the nodes whose controllers run, and an error for each other host.
        """

        def start(host: Host) -> None:
            with self._connect(host) as session:
                message = make_message(host, session.route()[0])
                self._call(
                    session,
                    host,
                    "start",
                    stdin=encode_start_messages([message]),
                    timeout_s=_START_TIMEOUT_S,
                )

        started, errors = on_hosts({host.name: host for host in hosts}, start, done=done)
        return list(started), errors

    def stop(self, hosts: Sequence[Host], done: Done, *, keep_jobs: bool) -> list[HostError]:
        """End nodes with their jobs; with ``keep_jobs``, end only the controllers.

        ``done`` is called when a host is done, with its name and None or the error.

        Returns:
            An error for each host on which this failed.
        """

        def stop(host: Host) -> None:
            words = [*self._node_arguments(host), *(["keep-jobs"] if keep_jobs else [])]
            with self._connect(host) as session:
                answer = self._call(session, host, "stop", *words, timeout_s=_STOP_TIMEOUT_S)
            if answer.get("left"):
                raise HostError(
                    host.name, "stop", f"still there: {', '.join(answer['left'])}", "end it there"
                )

        return on_hosts({host.name: host for host in hosts}, stop, done=done)[1]

    def explain(self, hosts: Sequence[Host], *, all_of_them: bool) -> list[HostError]:
        """Return an error for each host; its text says why the node of the host has not registered.

        If ``all_of_them`` is false, hosts whose controllers still run are left out.
        """

        def explain(host: Host) -> None:
            with self._connect(host) as session:
                answer = self._call(
                    session, host, "log", *self._node_arguments(host), timeout_s=60.0
                )
            if answer.get("running") and not all_of_them:
                return
            runs = "runs, but does not reach the server" if answer.get("running") else "has ended"
            state = f"the controller {runs}"
            raise HostError(
                host.name,
                "register",
                f"{state}; the end of its log:\n{answer.get('log', '')}",
                _REMEDIES["join"],
            )

        return on_hosts({host.name: host for host in hosts}, explain)[1]

    def _node_arguments(self, host: Host) -> list[str]:
        """Return the arguments that name a node to `node_agent`: folder of nodes, cluster, node."""
        return [self._spec.node_dir, self._cluster_id, host.name]

    def _connect(self, host: Host) -> SshSession:
        target = parse_target(
            host.target, key_file=self._spec.key_file, known_hosts=self._spec.known_hosts
        )
        return connect(replace(target, name=host.name))

    def _call(
        self, session: SshSession, host: Host, action: str, *words: str, **more: Any
    ) -> dict[str, Any]:
        """Run `node_agent` on a host with an action and its arguments, and return its answer.

        Raises:
            HostError: the agent could not be started, or it failed.
        """
        python = host.python or sys.executable
        # -P: the folder in which SSH starts may hold anything.
        done = session.run([python, "-P", "-m", MODULE, action, *words], step=action, **more)
        if done.code in _COMMAND_NOT_FOUND:
            raise HostError(host.name, "python", f"{python} cannot be run there", _SAME_PATH)
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        try:
            answer = dict(json.loads(lines[-1]))
        except (IndexError, ValueError, TypeError):
            cause = done.last_line or f"{python} ended with {done.code}"
            step = "python" if "No module named" in cause else action
            raise HostError(
                host.name, step, cause, _SAME_PATH if step == "python" else ""
            ) from None
        if answer.get("event") == "failed":
            step = answer["step"]
            raise HostError(host.name, step, answer["error"], _REMEDIES.get(step, ""))
        return answer
