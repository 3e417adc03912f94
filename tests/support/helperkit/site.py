"""A host with a root helper, and a server and a controller of an account without rights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from helperkit.helper import ACCOUNT, CLUSTER, NODE, Helper
from helperkit.identity import acting_as
from pliant.client.api import Client
from pliant.client.client_errors import ClientError
from testkit import wait_until
from tlskit import Membership, tls_addresses

T = TypeVar("T")


def start_daemon(
    host: Helper,
    name: str,
    state: Path,
    words: Sequence[str],
    hidden: Path | None = None,
    *,
    uid: int = ACCOUNT,
    variables: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start a daemon on a host, by default as the account.

    Args:
        host: with the accounts and the interpreter.
        name: of the log.
        state: the state folder.
        words: the module and its options; files of settings are in the folder of the host.
        hidden: a folder of which the daemon sees only an empty one, as if it were not mounted.
        uid: the account that it runs as.
        variables: more of its environment, as NAME=VALUE.
    """
    folders = [f"PLIANT_STATE_DIR={state}", f"PLIANT_RUN_DIR={state / 'run'}"]
    become = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
    options = [str(host.base / word) if word.endswith(".yaml") else word for word in words]
    program = [*become, "env", *folders, *variables, host.python, "-m", *options]
    if hidden is not None:
        hide = 'mount -t tmpfs none "$0" && exec "$@"'
        program = ["sh", "-c", hide, str(hidden), *program]
    with open(host.base / f"{name}.log", "ab") as log:
        return subprocess.Popen(
            host.in_host(program), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )


def give_to_account(folder: Path, uid: int = ACCOUNT) -> None:
    """Give a folder with its content to an account, by default that of server and controllers."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


def connect(folder: Path, uid: int, account: int = ACCOUNT) -> Client:
    """Return a client that is connected as a user.

    Args:
        folder: with the socket for users.
        uid: of the user.
        account: of the server, which the user trusts.
    """
    with pytest.MonkeyPatch.context() as patch, acting_as(uid):
        patch.setenv("PLIANT_SERVER_USER", str(account))
        made = Client(str(folder))
        made.nodes()
    return made


class Site(Helper):
    """The server and one node, as an administrator would set them up for all users."""

    def __init__(self, slots: int = 4, address: str = "127.0.0.1") -> None:
        super().__init__()
        self.account = self.base / "account"
        self.server, self.node = self.account / "server", self.account / "node"
        self.users, self.checkpoints = self.base / "users", self.base / "checkpoints"
        for folder in (self.account, self.users, self.checkpoints):
            folder.mkdir()
        self.checkpoints.chmod(0o1777)
        self.slots = slots
        #: A folder of which the controller sees only an empty one, as if it were not mounted.
        self.hidden_from_node: Path | None = None
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.membership = Membership(self.server, CLUSTER)
        public = (self.membership.directory / "order.pub").read_bytes()
        (self.etc / "order.pub").write_bytes(public)
        config = {
            "users": "all",
            "users_dir": str(self.users),
            "checkpoints": str(self.checkpoints),
            "listen": f"{address}:0",
            "strategy": "fcfs",
        }
        (self.base / "server.yaml").write_text(json.dumps(config))
        settings = {"name": NODE, "slots": slots, "helper": str(self.run / "helper.sock")}
        (self.base / "node.yaml").write_text(json.dumps(settings))
        give_to_account(self.account)
        give_to_account(self.users)
        self._clients: dict[int, Client] = {}

    def up(self) -> None:
        """Start the helper, the server and the controller."""
        self.start()
        self.start_server()
        servers = [tls_addresses(self.server / "run")["nodes"]]
        with acting_as(ACCOUNT):
            self.membership.join(self.node, NODE, servers, self.slots)
        self.start_node()

    def start_server(self) -> None:
        """Start the server, and wait until it listens."""
        self._daemon("server", self.server, "pliant.server", "--config", "server.yaml")
        wait_until((self.users / "server.sock").exists, what="the server")
        wait_until((self.server / "run" / "cluster.addresses").exists, what="its addresses")

    def start_node(self) -> None:
        """Start the controller, and wait until the server has it."""
        self.launch_node()
        wait_until(self._is_up, what="the node", timeout=60)

    def launch_node(self) -> None:
        """Start the controller, and wait for nothing."""
        self._daemon("node", self.node, "pliant.nodectl", "--config", "node.yaml")

    def _is_up(self) -> bool:
        try:
            return [node.state for node in self.as_user(0).nodes()] == ["UP"]
        except ClientError:
            return False

    def end_daemon(self, name: str, number: int = signal.SIGKILL) -> None:
        """End the server or the controller."""
        self.daemons[name].send_signal(number)
        self.daemons.pop(name).wait(60)

    def _daemon(self, name: str, state: Path, module: str, *words: str) -> None:
        hidden = self.hidden_from_node if name == "node" else None
        self.daemons[name] = start_daemon(self, name, state, (module, *words), hidden)

    def as_user(self, uid: int) -> Client:
        """Return a client that is connected as a user."""
        if uid not in self._clients:
            self._clients[uid] = connect(self.users, uid)
        return self._clients[uid]

    def wait(self, uid: int, job: int, accept: Callable[[str, int], bool], what: str) -> None:
        """Wait until a job has an accepted state and size."""

        def ready() -> bool:
            found = self.as_user(uid).job(job)
            assert not found.final or accept(found.state, found.held), self.report(uid, job)
            return accept(found.state, found.held)

        try:
            wait_until(ready, timeout=90, every=0.1, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.report(uid, job)}") from None

    def report(self, uid: int, job: int) -> str:
        """Return all that is known about a job."""
        logs = "\n".join((self.base / f"{name}.log").read_text() for name in ("server", "node"))
        shims = "\n".join(path.read_text() for path in (self.run / "jobs").rglob("shim.log"))
        events = "\n".join(map(str, self.as_user(uid).history(job)))
        return f"{self.as_user(uid).job(job)}\n{events}\n{logs}\n{self.log()}\n{shims}"

    def close(self) -> None:
        """End everything, and remove all folders, whatever has failed before."""
        try:
            for client in self._clients.values():
                client.close()
            for name in list(self.daemons):
                self.end_daemon(name, signal.SIGTERM)
        finally:
            super().close()
