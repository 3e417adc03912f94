"""The plan of a removal: everything that was deployed on a host, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from pliant.deploy.planning.cluster import Cluster, Folders, Host, Role
from pliant.deploy.planning.facts import HostFacts
from pliant.deploy.planning.host_daemons import account_arguments, daemon_names, stop_steps
from pliant.deploy.planning.plan import PlanError
from pliant.deploy.planning.settings_files import (
    HELPER_FILES,
    HELPER_RUN,
    HELPER_STATE,
    settings_path,
)
from pliant.deploy.planning.steps import Phase, Plan, Step


class NodeUse(NamedTuple):
    """The state of a node and the number of its used slots, as the server lists them."""

    state: str
    #: Slots that jobs use.
    used: int


_STOPPING_S = 30


def plan_removal(
    cluster: Cluster,
    host: Host,
    facts: HostFacts,
    *,
    nodes: Mapping[str, NodeUse],
    removed: Collection[str],
    end_jobs: bool,
    with_server: bool,
) -> Plan:
    """Return the steps that remove Pliant from a host.

    Args:
        cluster: the hosts file.
        host: one of its hosts.
        facts: the facts of this host.
        nodes: the nodes that the server lists, by name; empty if the server does not answer.
        removed: names of the hosts from which Pliant is removed.
        end_jobs: whether to end jobs that run on the hosts.
        with_server: whether the server is removed, too. Then the node is not removed from its list.

    Raises:
        PlanError: jobs run on the host, nodes would lose their server, or the host belongs to
            another cluster.
    """
    if facts.manifest is None:
        return Plan(())
    if facts.manifest.cluster not in ("", cluster.name):
        raise PlanError(f"the host belongs to cluster {facts.manifest.cluster}: use its hosts file")
    if Role.SERVER in host.roles:
        left = sorted(
            name for name, use in nodes.items() if use.state != "LOST" and name not in removed
        )
        if left:
            raise PlanError(f"{', '.join(left)} would lose their server: remove them, too")
        busy = sorted(name for name, use in nodes.items() if use.used)
    else:
        busy = [host.name] if host.name in nodes and nodes[host.name].used else []
        if host.name not in nodes and facts.job_processes and not end_jobs:
            raise PlanError(
                f"the server does not answer, and {facts.job_processes} processes of jobs run "
                "here: start the server and drain the node, or use --end-jobs"
            )
    if busy and not end_jobs:
        names = ",".join(busy)
        raise PlanError(
            f"jobs run on {names}: drain and wait (`pliant node drain {names}`), or use --end-jobs"
        )
    own, kept = _state_folders(cluster, host, facts)
    notes = tuple(
        f"{folder} was there before the deployment and is kept: remove the files of Pliant in it "
        "by hand"
        for folder in kept
    )
    return Plan(tuple(_steps(cluster, host, facts, own, with_server=with_server)), notes)


def _state_folders(cluster: Cluster, host: Host, facts: HostFacts) -> tuple[list[str], list[str]]:
    """Return two lists: the folders to remove with their content, and the folders to keep.

    A folder is removed only if the record of the deployment lists it, or if its path is one of
    Pliant's default paths (systemd makes some of these). Others are kept: the hosts file may
    have been changed since, or may name a folder that held other files before.
    """
    assert facts.manifest is not None
    usual = Folders()
    ours = {*facts.manifest.folders, usual.state, usual.run, HELPER_RUN, HELPER_STATE}
    folders = [host.folders.state, host.folders.run, *_helper_folders(cluster)]
    return (
        [folder for folder in folders if folder in ours],
        [folder for folder in folders if folder not in ours],
    )


def _steps(
    cluster: Cluster, host: Host, facts: HostFacts, own: list[str], *, with_server: bool
) -> Iterator[Step]:
    manifest = facts.manifest
    assert manifest is not None
    base = account_arguments(cluster, host)
    running = [name for name in daemon_names(cluster, host) if name in facts.daemons]
    first = [name for name in running if name != "helper"]
    for unit in manifest.units:
        if unit != "pliant-helper":
            yield Step(f"stop {unit}", "stop-unit", {**base, "unit": unit}, phase=Phase.START)
    if not manifest.units:
        yield from stop_steps(cluster, host, first)
    if Role.NODE in host.roles and facts.node_roots and manifest.environment in facts.environments:
        program = os.path.join(host.folders.environment(manifest.environment), "bin", "pliant")
        argv = [program, "nodectl", "--config", settings_path(host, "node.yaml"), "--end-jobs"]
        yield Step(
            "end jobs and their processes",
            "run-command",
            # The launcher holds the lock of the controller for a moment after it was stopped.
            {**base, "argv": argv, "retry_s": _STOPPING_S},
            phase=Phase.START,
        )
    if "pliant-helper" in manifest.units:
        yield Step(
            "stop pliant-helper",
            "stop-unit",
            {**base, "unit": "pliant-helper"},
            phase=Phase.START,
        )
    if facts.node_roots and not with_server:
        yield from _withdrawal(cluster, host)
    yield Step(
        "remove environments, settings, state and folders",
        "remove-all",
        {
            **base,
            "own": own,
            "helper_files": [settings_path(host, name) for name in HELPER_FILES],
        },
        phase=Phase.START,
    )


def _helper_folders(cluster: Cluster) -> list[str]:
    return [HELPER_RUN, HELPER_STATE] if cluster.has_helper else []


def _withdrawal(cluster: Cluster, host: Host) -> Iterator[Step]:
    """Yield the steps that revoke the certificate of a host and remove its node from the server."""
    server = cluster.server
    is_node = Role.NODE in host.roles
    revoke = ["pliant", "cluster", "revoke", host.name, *([] if is_node else ["--login-agents"])]
    commands = [("revoke its certificate", revoke)]
    if is_node:
        commands.append(("take it off the list of nodes", ["pliant", "node", "remove", host.name]))
    for text, words in commands:
        yield Step(
            text,
            "run-server-command",
            {**account_arguments(cluster, server), "words": words, "may_fail": True},
            phase=Phase.START,
            on_server=True,
        )
