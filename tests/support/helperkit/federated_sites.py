"""A federation on hosts of their own: sites with users of their own, and a grid server of alice."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from helperkit.helper import ACCOUNT, ALICE, BOB, Helper
from helperkit.identity import acting_as
from helperkit.site import Site, connect, give_to_account, start_daemon
from netkit.network import Network
from pliant.client.api import Job
from pliant.client.client_errors import ClientError
from testkit import wait_until
from tlskit import Membership, tls_addresses

_COMMANDS = "pliant.client.commands.cli"


class NetworkSite(Site):
    """A server for all users, its node, and its root helper, on one host of a network."""

    def __init__(self, network: Network, name: str, slots: int) -> None:
        self._network, self._name = network, name
        address = network.address(name)
        super().__init__(slots, address)
        settings = self.base / "server.yaml"
        known = json.loads(settings.read_text())
        settings.write_text(json.dumps({**known, "listen_users": f"{address}:0"}))

    def in_host(self, program: list[str]) -> list[str]:
        """Return a command that runs on this host."""
        return [*self._network.inside(self._name), *super().in_host(program)]

    def stubs(self) -> list[Job]:
        """Return the stubs that hold or wait for a processor of this site."""
        return [job for job in self.as_user(0).jobs() if job.name.startswith("stub:")]

    def occupy(self, processors: int) -> int:
        """Let bob run a job here, and return its number."""
        job = self.as_user(BOB).submit(
            "sleep", "3600", sizes=processors, stdout="/dev/null", chdir=str(self.output)
        )
        self.wait(BOB, job, lambda state, _: state == "RUNNING", "a local job")
        return job


class GridHost(Helper):
    """The host of alice's grid server and federation, and of a login agent for each site."""

    def __init__(self, network: Network, slots: Mapping[str, int], **settings: Any) -> None:
        """Prepare the hosts.

        Args:
            network: in which each site is a host.
            slots: of each site by name.
            settings: of the federation.
        """
        self._network = network
        super().__init__()
        self._stack, self._client = ExitStack(), ExitStack()
        self.alice, self.nodes = self.base / "alice", self.base / "n"
        self.nodes.mkdir(mode=0o700)
        self._settings = settings
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.sites: dict[str, NetworkSite] = {}
        try:
            for name, number in slots.items():
                self.sites[name] = NetworkSite(network, name, number)
        except BaseException:
            self.close()
            raise
        config = {
            "strategy": "equipartition",
            "listen": f"{network.server}:0",
            "federated_processors": sum(slots.values()),
            "lease_s": 6.0,
            "beat_interval_s": 0.5,
        }
        (self.base / "grid.yaml").write_text(json.dumps(config))
        Membership(self.alice, "grid")
        for folder in (self.alice, self.nodes):
            give_to_account(folder, ALICE)

    def in_host(self, program: list[str]) -> list[str]:
        """Return a command that runs on this host."""
        return [*self._network.inside("server"), *super().in_host(program)]

    def up(self) -> None:
        """Start the sites, the login agents, the grid server and the federation."""
        for name, site in self.sites.items():
            site.up()
            self._start_agent(name, site)
        self._start("grid", self.alice, "pliant.server", "--config", "grid.yaml", uid=ALICE)
        wait_until((self.alice / "run" / "server.sock").exists, what="the grid server")
        wait_until((self.alice / "run" / "cluster.addresses").exists, what="its addresses")
        self.server_client = connect(self.alice / "run", ALICE, ALICE)
        self._client.callback(self.server_client.close)
        self._start_federation()

    def _start_agent(self, name: str, site: NetworkSite) -> None:
        folder = self.base / f"agent-{name}"
        folder.mkdir()
        give_to_account(folder)
        with acting_as(ACCOUNT):
            made = site.membership.admit_agent("grid")
            site.membership.write_agent_identity(folder / "identity", "grid", made)
        words = ["--identity", str(folder / "identity"), "--users-dir", str(folder / "users")]
        server = tls_addresses(site.server / "run")["users"]
        self._start(f"agent-{name}", folder, _COMMANDS, "login-agent", *words, "--server", server)
        wait_until((folder / "users" / "server.sock").exists, what=f"the login agent of {name}")

    def _start_federation(self) -> None:
        sites = {
            name: {
                "run_dir": str(self.base / f"agent-{name}" / "users"),
                "max_stubs": site.slots,
                "python": site.python,
                "node_dir": str(self.nodes),
                "log_dir": str(self.output),
            }
            for name, site in self.sites.items()
        }
        folders = {"run_dir": str(self.alice / "run"), "state_dir": str(self.alice)}
        settings = {"sites": sites, **folders, **self._settings}
        (self.base / "federation.yaml").write_text(json.dumps(settings))
        # Only the user database tells who alice is.
        variables = [f"PLIANT_SERVER_USER={ACCOUNT}", "USER=root", "LOGNAME=root"]
        words = [_COMMANDS, "federation", "--config", "federation.yaml"]
        self._start("federation", self.alice, *words, uid=ALICE, variables=variables)

    def _start(self, name: str, state: Path, *words: str, **more: Any) -> None:
        self._daemons.append(start_daemon(self, name, state, words, **more))

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Wait until something is the case; a server that does not answer has not done it."""

        def accept() -> bool:
            try:
                return ready()
            except ClientError:
                return False

        try:
            wait_until(accept, timeout=120, every=0.1, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.report()}") from None

    def report(self) -> str:
        """Return all that is known."""
        logs = [*self.base.glob("*.log"), *self.output.iterdir()]
        texts = [f"--- {path.name}\n{path.read_text()[-3000:]}" for path in logs]
        jobs = [str(job) for job in self.server_client.jobs()]
        return "\n".join([*jobs, *map(str, self.server_client.nodes()), *texts])

    def close(self) -> None:
        """End everything on all hosts, and remove all folders."""
        with ExitStack() as stack:
            for site in self.sites.values():
                stack.callback(site.close)
            stack.callback(super().close)
            stack.push(self._client)
            for daemon in self._daemons:
                stack.callback(daemon.wait, 60)
                stack.callback(daemon.send_signal, signal.SIGTERM)
