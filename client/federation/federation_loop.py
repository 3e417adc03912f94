"""Observe the servers of a federation, and carry out the planner's actions.

The grid server is the federation's own server; its nodes are jobs at the other servers, the sites.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pwd
import time
from collections.abc import Container, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pliant.client.api.client import Client
from pliant.client.client_errors import ClientError
from pliant.client.cluster.local_cluster import ADDRESS
from pliant.client.cluster.remote.host_admission import ADDRESSES, HostAdmission, joining_port
from pliant.client.cluster.remote.node_agent import MODULE, START_VARIABLE
from pliant.client.cluster.remote.node_start_message import NodeStartMessage, encode_start_messages
from pliant.client.connection import Connection
from pliant.client.federation.planner import Planner
from pliant.client.federation.planner_inputs_and_actions import (
    Action,
    CancelStub,
    Claim,
    DrainNode,
    GridJob,
    GridNode,
    Observation,
    RemoveNode,
    ResumeNode,
    SiteLoad,
    Stub,
    SubmitStubs,
    parse_stub_name,
    stub_name,
)
from pliant.client.federation.settings import FederationSettings, SiteSettings
from pliant.core.support.plural import plural
from pliant.core.values.sizes import parse_sizes
from pliant.protos.address import TcpAddress

log = logging.getLogger("pliant.federation")

#: Time limits of requests, and of requests to a site that did not answer the last time; seconds.
_REQUEST_S, _SILENT_S = 10.0, 1.0
#: Reasons for which a waiting job would not start on more processors.
_OTHER_REASONS = {"dependency", "begin", "resource", "user_limit"}
#: Variables of this process that stubs get.
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR")


class Federation:
    """Observes the servers of a federation, and claims processors of the sites.

    The sites are Pliant servers with users of their own. The claimed processors become nodes of the
    grid server, the federation's own server.
    """

    def __init__(self, settings: FederationSettings) -> None:
        self._settings = settings
        self._planner = Planner(settings)
        self._user = _user_name()
        self._admission = HostAdmission(settings.state_dir)
        self._grid = Connection(settings.run_dir, timeout_s=_REQUEST_S)
        self._sites = {
            name: Connection(site.run_dir, timeout_s=_REQUEST_S)
            for name, site in settings.sites.items()
        }
        #: The stubs of each site at its last answer.
        self._stubs: dict[str, list[Stub]] = {name: [] for name in settings.sites}
        #: Sites that did not answer, and why.
        self._silent: dict[str, str] = {}

    def poll(self) -> float:
        """Observe all servers and carry out the planned actions.

        Returns:
            The seconds until the next poll.

        Raises:
            NoServerError: the federation's own server does not answer, so nothing is done.
        """
        for action in self._planner.plan(self.observe()):
            try:
                self._carry_out(action)
            except (ClientError, OSError) as error:
                # Such as files of a grid server that is being restarted. The next poll plans again.
                log.warning("%s: %s", type(action).__name__, error)
        wait_s = self._settings.poll_s
        return min(1.0, wait_s) if self._planner.has_open_claims else wait_s

    def end_stubs(self) -> int:
        """Cancel the federation's placeholder jobs at all sites; return how many there were."""
        seen = self.observe()
        for stub in seen.stubs:
            with suppress(ClientError):
                self._carry_out(CancelStub(stub, "the federation ends"))
        return len(seen.stubs)

    # -- observe

    def observe(self) -> Observation:
        """Return the jobs and nodes of all servers.

        Raises:
            NoServerError: the federation's own server does not answer.
        """
        jobs = self._grid.request("jobs", ids=None, all=False)["jobs"]
        nodes = self._grid.request("nodes")["nodes"]
        sites = {}
        for name in self._settings.sites:
            try:
                sites[name] = self._observe_site(name)
                if self._silent.pop(name, None):
                    log.info("site %s answers again", name)
            except ClientError as error:
                if name not in self._silent:
                    log.warning(
                        "site %s does not answer, nothing is claimed there: %s", name, error
                    )
                self._silent[name] = str(error)
        return Observation(
            time.time(),
            [_grid_job(job) for job in jobs if "array" not in job],
            {
                node["name"]: GridNode(
                    node["state"], node["used"], node["reason"], node["connected"]
                )
                for node in nodes
                if is_stub(node, self._settings.sites)
            },
            sites,
            [stub for stubs in self._stubs.values() for stub in stubs],
        )

    def _observe_site(self, name: str) -> SiteLoad:
        link = self._sites[name]
        # A site that does not answer must not delay the claims at all others in each poll.
        limit_s = _SILENT_S if name in self._silent else _REQUEST_S
        nodes = link.request("nodes", limit_s=limit_s)["nodes"]
        answer = link.request("jobs", limit_s=limit_s, ids=None, all=False)
        ahead_s = answer["now"] - time.time()  # the clocks of the sites may differ
        stubs, others_wait = [], False
        for job in answer["jobs"]:
            found = parse_stub_name(self._settings.name, job["name"])
            if found is None or job["user"] != self._user:
                others_wait = others_wait or job["state"] == "PENDING"
            elif job["state"] != "COMPLETING":
                stubs.append(_stub(name, job, *found, ahead_s))
        self._stubs[name] = stubs
        idle = sum(node["slots"] - node["used"] for node in nodes if node["state"] == "UP")
        return SiteLoad(idle - sum(not stub.has_started for stub in stubs), others_wait)

    # -- act

    def _carry_out(self, action: Action) -> None:
        match action:
            case SubmitStubs(site, nodes, claim):
                log.info("job %d: %s at %s", claim.job, plural(len(nodes), "stub"), site)
                for node in nodes:
                    self._submit(site, node, claim)
            case CancelStub(stub, reason):
                log.info(
                    "cancel stub %s (job %d of %s): %s", stub.node, stub.job, stub.site, reason
                )
                limit_s = _SILENT_S if stub.site in self._silent else _REQUEST_S
                self._sites[stub.site].request("cancel", limit_s=limit_s, ids=[stub.job])
            case ResumeNode(node):
                log.info("node %s is put into use", node)
                self._grid.request("resume", node=node)
            case DrainNode(node, reason):
                log.info("node %s takes no more work: %s", node, reason)
                self._grid.request("drain", node=node, reason=reason)
            case RemoveNode(node):
                self._grid.request("remove", node=node)
                if self._admission.exists:
                    self._admission.revoke([node])
                log.info("node %s is removed", node)

    def _submit(self, site: str, node: str, claim: Claim) -> None:
        settings = self._settings.sites[site]
        message = encode_start_messages([self._make_message(settings, site, node)])
        env = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
        output = os.path.join(settings.log_dir, f"{node}.log") if settings.log_dir else os.devnull
        with Client(settings.run_dir, timeout_s=_REQUEST_S) as client:
            client.submit(
                *(settings.python, "-P", "-m", MODULE, "stub", f"{self._settings.orphan_s:g}"),
                sizes=1,
                name=stub_name(self._settings.name, node, claim),
                env={**env, START_VARIABLE: message.decode("ascii").strip()},
                chdir="/",
                stdout=output,
                requeue=False,
                time_limit_s=self._settings.lifetime_s,
            )

    def _make_message(self, settings: SiteSettings, site: str, node: str) -> NodeStartMessage:
        """Return the start message that makes a placeholder job at a site the node ``node``.

        The message contains a token for joining the federation's server. If that server has no
        address on the network, it contains the paths of files with its address and secret instead.
        """
        options = ["--slots", "1", "--cluster", site, "--joins-drained"]
        if settings.interface:
            options += ["--interface", settings.interface]
        run, state = self._settings.run_dir, self._settings.state_dir
        if self._admission.exists and os.path.exists(os.path.join(run, ADDRESSES)):
            server = TcpAddress(self._settings.address or _own_address(run), joining_port(run))
            token = self._admission.make_token(node, server, 1)
            cluster = self._admission.cluster_id
            return NodeStartMessage(
                node, cluster, token, str(server), tuple(options), settings.node_dir
            )
        cluster = hashlib.sha256(os.path.realpath(state).encode()).hexdigest()[:12]
        files = (os.path.join(run, ADDRESS), os.path.join(state, "node.secret"))
        return NodeStartMessage(node, cluster, "", "", tuple(options), settings.node_dir, *files)


def _user_name() -> str:
    """Return the name that servers show for this user.

    Servers do not use ``USER`` and ``LOGNAME``, which can name another user, such as after ``su``.
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _own_address(run: str) -> str:
    """Return the HOST at which the federation's own server listens.

    Raises:
        ClientError: the server listens at all addresses, so the settings must name one.
    """
    addresses = json.loads(Path(run, ADDRESSES).read_text(encoding="ascii"))
    host = str(addresses["joining"]).rpartition(":")[0].strip("[]")
    if host in {"", "0.0.0.0", "::"}:
        raise ClientError("address: name the address at which sites reach the grid server")
    return host


def is_stub(node: Mapping[str, Any], sites: Container[str]) -> bool:
    """Return whether a node of the federation's server is the processor of a stub.

    A stub is a placeholder job at a site. Its node is recognised by the name, SITE-NUMBER, and by
    the node's cluster, SITE.
    """
    site = node["name"].rpartition("-")[0]
    return site in sites and node["cluster"] == site


def _grid_job(job: Mapping[str, Any]) -> GridJob:
    sizes = parse_sizes(job["sizes"], job["prefer"])
    return GridJob(
        job["id"],
        sizes,
        tuple(job.get("components") or (sizes.min,)),
        job["processors"],
        frozenset(job["nodes"]),
        job["state"] == "PENDING" and job["reason_code"] not in _OTHER_REASONS,
        job["state"] == "RUNNING" and job["class"] == "malleable" and job["held"] < sizes.max,
    )


def _stub(site: str, job: Mapping[str, Any], node: str, claim: Claim, ahead_s: float) -> Stub:
    ends = job.get("limit_end")
    return Stub(
        site,
        job["id"],
        node,
        claim,
        submitted=job["submit"] - ahead_s,
        has_started=bool(job["start"]),
        ends=None if ends is None else ends - ahead_s,
    )
