"""Make the plan of a host: the steps from its present facts to the state that it should have."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence

from pliant.core.support.base_error import PliantError
from pliant.deploy.planning.checks import uses_systemd
from pliant.deploy.planning.cluster import Cluster, Host, Role
from pliant.deploy.planning.facts import HostFacts
from pliant.deploy.planning.host_daemons import (
    account_arguments,
    daemon_names,
    join_step,
    start_step,
    wait_steps,
)
from pliant.deploy.planning.release import Release
from pliant.deploy.planning.settings_files import (
    HELPER_RUN,
    HELPER_STATE,
    USERS_DIR,
    ExpectedFile,
    settings_files,
    unit_files,
)
from pliant.deploy.planning.steps import Payload, Phase, Plan, Step


class PlanError(PliantError, code="deployment-plan"):
    """No plan can be made for a host; the text says why and names the remedy."""


def probe_arguments(cluster: Cluster, host: Host) -> dict[str, object]:
    """Return the arguments of the operation ``probe`` on a host."""
    files = [*settings_files(cluster, host), *unit_files(cluster, host, "")]
    folders = [path for path, _, _ in _wanted_folders(cluster, host, "")]
    return {
        "prefix": host.folders.prefix,
        "state": host.folders.state,
        "run": host.folders.run,
        "accounts": sorted({cluster.account, *cluster.users}),
        "files": [file.path for file in files],
        "folders": [*folders, cluster.checkpoints] if cluster.checkpoints else folders,
        "writable": [host.folders.prefix, host.folders.state],
        "server": cluster.server_address,
    }


def plan_deployment(
    cluster: Cluster, host: Host, facts: HostFacts, release: Release, *, upgrade: bool = False
) -> Plan:
    """Return the steps that bring a host into the state that the hosts file describes.

    Args:
        cluster: the hosts file.
        host: one of its hosts.
        facts: the facts of this host.
        release: the release to be installed.
        upgrade: whether another release may be replaced.

    Raises:
        PlanError: the host has another release, and this is no upgrade.
    """
    current = facts.manifest.environment if facts.manifest else ""
    if current not in ("", release.environment) and not upgrade:
        raise PlanError(
            f"the host has {current}, the wheelhouse is {release.environment}: use --upgrade, or "
            "the wheelhouse of this release"
        )
    return _Planner(cluster, host, facts, release.environment, release).plan()


def plan_rollback(cluster: Cluster, host: Host, facts: HostFacts) -> Plan:
    """Return the steps that return a host to the release before the last upgrade.

    Raises:
        PlanError: the host has no earlier release.
    """
    if facts.manifest and _is_half_upgraded(cluster, host, facts, facts.manifest.environment):
        return _Planner(cluster, host, facts, facts.manifest.environment, None).plan()
    previous = facts.manifest.previous if facts.manifest else ""
    if not previous or previous not in facts.environments:
        raise PlanError("the host has no earlier release: nothing to return to")
    return _Planner(cluster, host, facts, previous, None).plan()


def _is_half_upgraded(cluster: Cluster, host: Host, facts: HostFacts, recorded: str) -> bool:
    """Return whether a daemon is stopped, or runs another release than the recorded one.

    This happens if an upgrade has failed half-way.
    """
    running = {name: daemon.environment for name, daemon in facts.daemons.items()}
    return bool(recorded) and any(
        running.get(name) != recorded for name in daemon_names(cluster, host)
    )


class _Planner:
    """Computes the steps of the plan for one host."""

    def __init__(
        self,
        cluster: Cluster,
        host: Host,
        facts: HostFacts,
        environment: str,
        release: Release | None,
    ) -> None:
        self._cluster, self._host, self._facts = cluster, host, facts
        self._environment, self._release = environment, release
        self._folder = host.folders.environment(environment)
        self._systemd = uses_systemd(cluster, facts)
        self._base = account_arguments(cluster, host)
        self._notes: list[str] = []
        #: Daemons whose files have changed since their start, also if an earlier run failed.
        self._changed: set[str] = set(facts.manifest.to_restart if facts.manifest else ())

    def plan(self) -> Plan:
        files = list(self._files())
        steps = [
            *self._account(),
            *self._folders(),
            *self._environments(),
            *files,
            *self._identity(),
            *self._daemons(),
        ]
        if {self._current, self._facts.current} != {self._environment}:
            steps.append(self._switch())
        return Plan(tuple(steps), tuple(self._notes))

    @property
    def _current(self) -> str:
        return self._facts.manifest.environment if self._facts.manifest else ""

    def _account(self) -> Iterator[Step]:
        account = self._cluster.account
        if self._facts.accounts.get(account) is None and not self._systemd:
            arguments = {**self._base, "home": self._host.folders.state}
            yield Step(f"make system account {account}", "make-account", arguments)

    def _folders(self) -> Iterator[Step]:
        """Yield the step that makes folders.

        With systemd, its units and tmpfiles make the folders of the daemons, so they are left out.
        """
        wanted = _wanted_folders(self._cluster, self._host, self._facts.user)
        if self._systemd:
            wanted = wanted[:_COMMON_FOLDERS]
        is_recorded = self._facts.manifest is not None and bool(self._facts.manifest.folders)
        # Those in /run are gone after a reboot, and an earlier run may have failed half-way.
        if is_recorded and {path for path, _, _ in wanted} <= set(self._facts.folders):
            return
        records = [{"path": path, "mode": mode, "owner": own} for path, mode, own in wanted]
        arguments = {**self._base, "cluster": self._cluster.name, "folders": records}
        yield Step(
            f"make folders {', '.join(path for path, _, _ in wanted)}", "make-folders", arguments
        )

    def _environments(self) -> Iterator[Step]:
        if self._release is None or self._environment in self._facts.environments:
            return
        size = self._release.unpacked_bytes >> 20
        yield Step(
            f"install {len(self._release.wheels)} wheels ({size} MB) in {self._folder}",
            "install-environment",
            {
                "prefix": self._host.folders.prefix,
                "environment": self._environment,
                "wheels": dict(self._release.wheels),
            },
            payload=Payload.WHEELS,
        )

    def _files(self) -> Iterator[Step]:
        expected = list(settings_files(self._cluster, self._host))
        if self._systemd:
            expected += unit_files(self._cluster, self._host, self._folder)
        is_unit_changed = False
        for file in expected:
            if self._must_write(file):
                self._changed |= set(file.daemons)
                is_unit_changed |= not file.is_setting
                arguments = {
                    **self._base,
                    "path": file.path,
                    "text": file.text,
                    "daemons": list(file.daemons),
                }
                yield Step(
                    f"write {file.path}",
                    "write-file",
                    arguments,
                    # A unit of the new release must not start before the release is there.
                    phase=Phase.PREPARE,
                )
        has_account = self._facts.accounts.get(self._cluster.account) is not None
        if is_unit_changed or (self._systemd and not has_account):
            yield Step("let systemd read its files", "use-systemd", self._base)

    def _must_write(self, file: ExpectedFile) -> bool:
        found = self._facts.files.get(file.path)
        if found == hashlib.sha256(file.text.encode("utf-8")).hexdigest():
            return False
        written = self._facts.manifest.files.get(file.path) if self._facts.manifest else None
        if found is None or found == written or not file.is_setting:
            return True
        self._notes.append(f"{file.path} was edited on the host and is kept")
        return False

    def _identity(self) -> Iterator[Step]:
        host, cluster = self._host, self._cluster
        if Role.SERVER in host.roles and not self._facts.server_roots:
            program = os.path.join(self._folder, "bin", "pliant")
            addresses = dict.fromkeys((cluster.server_address, *cluster.addresses))
            argv = [program, "cluster", "init", "--name", cluster.name]
            argv += [word for each in addresses for word in ("--address", each)]
            yield Step(
                f"make keys and certificates of cluster {cluster.name}",
                "run-command",
                {**self._base, "argv": argv},
                phase=Phase.START,
            )

    def _daemons(self) -> Iterator[Step]:
        is_member = bool(self._host.roles & {Role.NODE, Role.LOGIN})
        has_joined = not is_member or bool(self._facts.node_roots)
        is_joining = False
        for name in daemon_names(self._cluster, self._host):
            if name != "server" and not has_joined and not is_joining:
                is_joining = True
                yield join_step(self._cluster, self._host, self._environment)
            running = self._facts.daemons.get(name)
            if running and running.environment == self._environment and name not in self._changed:
                continue
            yield start_step(
                self._cluster,
                self._host,
                name,
                self._environment,
                systemd=self._systemd,
                is_restart=running is not None,
            )
            if name == "node":
                yield from wait_steps(self._cluster, self._host)

    def _switch(self) -> Step:
        arguments = {**self._base, "environment": self._environment}
        text = f"point {self._host.folders.prefix}/current to {self._environment}"
        return Step(text, "switch-environment", arguments, phase=Phase.START)


#: The first folders are those that systemd does not make.
_COMMON_FOLDERS = 2


def _wanted_folders(cluster: Cluster, host: Host, owner: str) -> list[tuple[str, int, str]]:
    """Return path, mode and owner of the folders of a host without systemd."""
    folders, account = host.folders, cluster.account
    wanted = [(folders.prefix, 0o755, owner), (folders.config, 0o755, owner)]
    wanted += [(folders.state, 0o700, account), (folders.run, 0o700, account)]
    if cluster.has_helper:
        wanted += [(HELPER_RUN, 0o755, owner), (HELPER_STATE, 0o700, owner)]
        wanted.append((USERS_DIR, 0o755, account))
    return wanted


def describe(steps: Sequence[Step]) -> list[str]:
    """Return a line of text for each step."""
    return [f"{number}. {step.text}" for number, step in enumerate(steps, 1)]
