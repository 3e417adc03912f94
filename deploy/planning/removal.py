"""The plan of a removal: everything that was deployed on a host, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator

from pliant.core.support.plural import plural
from pliant.deploy.planning.cluster import Cluster, Host, Role
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


def plan_removal(
    cluster: Cluster,
    host: Host,
    facts: HostFacts,
    *,
    used: int,
    end_jobs: bool,
    with_server: bool,
) -> Plan:
    """Return the steps that remove Pliant from a host.

    Args:
        cluster: the hosts file.
        host: one of its hosts.
        facts: of this host.
        used: slots of the node that jobs use.
        end_jobs: end jobs that run on the host.
        with_server: the server is removed, too, so it need not be told.

    Raises:
        PlanError: jobs run on the host, or the host belongs to another cluster.
    """
    if facts.manifest is None:
        return Plan(())
    if facts.manifest.cluster not in ("", cluster.name):
        raise PlanError(f"the host belongs to cluster {facts.manifest.cluster}: use its hosts file")
    if used and not end_jobs:
        raise PlanError(
            f"jobs use {plural(used, 'slot')} of the node: drain it and wait (`pliant node drain "
            f"{host.name}`), or use --end-jobs"
        )
    return Plan(tuple(_steps(cluster, host, facts, with_server=with_server)))


def _steps(cluster: Cluster, host: Host, facts: HostFacts, *, with_server: bool) -> Iterator[Step]:
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
    if Role.NODE in host.roles and facts.node_roots and manifest.environment:
        program = os.path.join(host.folders.environment(manifest.environment), "bin", "pliant")
        argv = [program, "nodectl", "--config", settings_path(host, "node.yaml"), "--end-jobs"]
        yield Step(
            "end jobs and their processes",
            "run-command",
            {**base, "argv": argv},
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
            "own": [host.folders.state, host.folders.run, *_helper_folders(cluster)],
            "helper_files": [settings_path(host, name) for name in HELPER_FILES],
        },
        phase=Phase.START,
    )


def _helper_folders(cluster: Cluster) -> list[str]:
    return [HELPER_RUN, HELPER_STATE] if cluster.has_helper else []


def _withdrawal(cluster: Cluster, host: Host) -> Iterator[Step]:
    """Yield the steps after which the server does not know the host any more."""
    server = cluster.server
    program = os.path.join(server.folders.environment("current"), "bin", "pliant")
    is_node = Role.NODE in host.roles
    revoke = [program, "cluster", "revoke", host.name, *([] if is_node else ["--login-agents"])]
    commands = [("revoke its certificate", revoke)]
    if is_node:
        commands.append(("take it off the list of nodes", [program, "node", "remove", host.name]))
    for text, argv in commands:
        yield Step(
            text,
            "run-command",
            {**account_arguments(cluster, server), "argv": argv, "may_fail": True},
            phase=Phase.START,
            on_server=True,
        )
