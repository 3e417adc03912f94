"""Carry out a command on all hosts: probe, check, plan, and do the steps in their order.

Hosts are independent of each other, with two exceptions. The server comes first, because nodes join
it. Daemons are restarted on one host after the other, so that at most one host is away at a time.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import MAGIC_NUMBER

import msgspec

from pliant.client.ssh.session import HostError
from pliant.deploy.planning.checks import find_problems
from pliant.deploy.planning.cluster import Cluster, Host
from pliant.deploy.planning.host_daemons import account_arguments, token_arguments
from pliant.deploy.planning.plan import PlanError, plan_deployment, plan_rollback
from pliant.deploy.planning.release import Platform, Release, ReleaseError, Wheel, choose_release
from pliant.deploy.planning.removal import NodeUse, plan_removal
from pliant.deploy.planning.steps import Payload, Phase, Plan, Step
from pliant.deploy.rollout.agent_session import AgentSession
from pliant.deploy.rollout.host_run import HostRun
from pliant.deploy.rollout.progress import ProgressView
from pliant.deploy.wheelhouse import pack_wheels


class Mode(StrEnum):
    """The task of ``pliant deploy``: deploy, upgrade, roll back, remove or check."""

    DEPLOY = "deploy"
    UPGRADE = "upgrade"
    ROLLBACK = "rollback"
    REMOVE = "remove"
    CHECK = "check"


@dataclass(frozen=True, slots=True)
class DeployRequest:
    """The command that the administrator gave: its task, its hosts and its options."""

    mode: Mode
    #: The hosts that the command is about.
    hosts: tuple[Host, ...]
    is_dry_run: bool = False
    #: Hosts that are worked on at the same time.
    parallel: int = 16
    #: With a removal: end jobs that run on the hosts.
    end_jobs: bool = False
    wheelhouse: str = ""
    wheels: Collection[Wheel] = ()
    #: Restart the daemons of the next host even if a host has failed.
    keeps_going: bool = False


class Deployment:
    """One run of a command of ``pliant deploy`` on its hosts."""

    def __init__(self, cluster: Cluster, request: DeployRequest, view: ProgressView) -> None:
        self._cluster, self._request, self._view = cluster, request, view
        selected = {host.name for host in request.hosts}
        # The server's host makes tokens, and knows its nodes, also for other hosts.
        hosts = dict.fromkeys((cluster.server, *request.hosts))
        self.runs = [
            HostRun(host, AgentSession(host, cluster.known_hosts), host.name in selected)
            for host in hosts
        ]
        self._archives: dict[tuple[object, ...], bytes] = {}
        self._archive_lock = threading.Lock()

    @property
    def selected(self) -> list[HostRun]:
        """Return the hosts that the command is about, in the order of the file."""
        names = [host.name for host in self._request.hosts]
        runs = {run.name: run for run in self.runs}
        return [runs[name] for name in names]

    @property
    def _server(self) -> HostRun:
        return self.runs[0]

    def run(self) -> None:
        """Carry out the command on all hosts; failures are recorded for each host."""
        try:
            self._each(self.runs, self._probe)
            self._check_shared_folders()
            # The plan to remove a node depends on whether the server is removed, too.
            self._check_and_plan(self._server)
            self._each(self.runs[1:], self._check_and_plan)
            if self._request.is_dry_run or self._request.mode is Mode.CHECK:
                return
            self._carry_out()
        finally:
            for run in self.runs:
                run.session.close()

    # ---------------------------------------------------------------- facts and plans

    def _probe(self, run: HostRun) -> None:
        self._view.step(run.name, "connect and look")
        run.connect_and_probe(self._cluster)
        self._note_step(run)

    def _check_shared_folders(self) -> None:
        server, shared = self._server, list(self._cluster.shared)
        if not shared or server.has_failed or self._request.mode is Mode.REMOVE:
            return
        arguments = {"shared": shared, "marker": f".pliant-deploy-{secrets.token_hex(8)}"}
        try:
            server.session.call("make-marker", arguments, step="shared folders")
            others = [run for run in self.runs[1:] if not run.has_failed]
            self._each(others, lambda run: self._find_marker(run, arguments))
        except HostError as failure:
            server.fail(failure)
        finally:
            try:
                server.session.call("remove-marker", arguments, step="shared folders")
            except HostError:
                pass  # the failure before this one is reported

    def _find_marker(self, run: HostRun, arguments: Mapping[str, object]) -> None:
        try:
            found = run.session.call("find-marker", arguments, step="shared folders")
        except HostError as failure:
            run.fail(failure)
            return
        assert run.facts is not None
        run.facts = msgspec.structs.replace(run.facts, not_shared=found["missing"])

    def _check_and_plan(self, run: HostRun) -> None:
        if run.facts is None or run.has_failed or not run.is_selected:
            if run.has_failed and run.is_selected:
                self._note_step(run)
            return
        try:
            release = self._release(run)
            if self._request.mode is not Mode.REMOVE:
                run.problems += find_problems(
                    self._cluster, run.host, run.facts, self._server.facts, release
                )
            if not run.has_failed:
                run.plan = self._plan(run, release)
        except (PlanError, ReleaseError) as error:
            message, _, remedy = str(error).partition(": ")
            run.fail(HostError(run.name, "plan", message, remedy))
        except HostError as failure:
            run.fail(failure)
        self._note_step(run)

    def _release(self, run: HostRun) -> Release | None:
        if not self._request.wheels or run.facts is None:
            return None
        facts = run.facts
        return choose_release(
            self._request.wheels, Platform.of(facts.python, facts.machine, facts.glibc)
        )

    def _plan(self, run: HostRun, release: Release | None) -> Plan:
        assert run.facts is not None
        match self._request.mode:
            case Mode.DEPLOY | Mode.UPGRADE:
                assert release is not None
                upgrade = self._request.mode is Mode.UPGRADE
                return plan_deployment(self._cluster, run.host, run.facts, release, upgrade=upgrade)
            case Mode.ROLLBACK:
                return plan_rollback(self._cluster, run.host, run.facts)
            case Mode.REMOVE:
                return plan_removal(
                    self._cluster,
                    run.host,
                    run.facts,
                    nodes=self._nodes(),
                    removed=[each.name for each in self._request.hosts],
                    end_jobs=self._request.end_jobs,
                    with_server=self._server.is_selected and not self._server.has_failed,
                )
        return Plan(())

    def _nodes(self) -> dict[str, NodeUse]:
        """Return the nodes that the server lists, by name; empty if the server does not answer."""
        server = self._server
        if server.facts is None or "server" not in server.facts.daemons:
            return {}
        arguments = account_arguments(self._cluster, server.host)
        found = server.session.call("list-nodes", arguments, step="ask the server")["nodes"]
        return {name: NodeUse(str(state), int(used)) for name, (state, used) in found.items()}

    # ---------------------------------------------------------------- steps

    def _carry_out(self) -> None:
        runs = [run for run in self.runs if run.is_selected and not run.has_failed]
        for run in runs:
            self._view.begin(run.name, len(run.plan.steps))
        self._each(runs, lambda run: self._do(run, Phase.PREPARE))
        others = [run for run in runs if run is not self._server]
        if self._request.mode is Mode.REMOVE:
            self._each(others, lambda run: self._do(run, Phase.START))
            self._keep_server_of_failed_hosts()
            self._start_server()
            return
        if self._stop_after_failure(runs, runs):
            return
        self._start_server()
        rolling = [run for run in others if run.plan.is_rolling]
        self._each([run for run in others if run not in rolling], self._start)
        for number, run in enumerate(rolling):
            if self._stop_after_failure(rolling[number:], runs):
                return
            self._start(run)

    def _stop_after_failure(self, rest: Sequence[HostRun], runs: Sequence[HostRun]) -> bool:
        """Stop the hosts ``rest`` if a host of ``runs`` has failed; return whether this was done.

        They are stopped only if one of ``rest`` would restart daemons and the administrator has not
        asked to keep going. A release that does not start on one host would probably fail on the
        others, too.
        """
        failed = next((run for run in runs if run.has_failed), None)
        if failed is None or self._request.keeps_going:
            return False
        if not any(run.plan.is_rolling for run in rest):
            return False
        for run in rest:
            if not run.has_failed and run.plan.steps:
                run.stopped_by = failed.name
                self._view.end(run.name, "not restarted")
        return True

    def _keep_server_of_failed_hosts(self) -> None:
        """Mark the server's host as failed if another host failed, so that the server stays.

        The failed host may still need the server.
        """
        failed = [run.name for run in self.runs[1:] if run.has_failed]
        if failed and self._server.is_selected and not self._server.has_failed:
            self._server.fail(
                HostError(
                    self._server.name,
                    "remove",
                    f"{', '.join(failed)} could not be removed and may need the server",
                    "correct these hosts and run the command again, or leave them out with --limit",
                )
            )

    def _start_server(self) -> None:
        if self._server.is_selected:
            self._do(self._server, Phase.START)
            self._end(self._server)

    def _start(self, run: HostRun) -> None:
        server = self._server
        is_serving = server.facts is not None and "server" in server.facts.daemons
        is_usable = not server.has_failed and (is_serving or server.is_selected)
        if run.plan.of(Phase.START) and not run.has_failed and not is_usable:
            run.fail(
                HostError(
                    run.name,
                    "server",
                    f"the server's host {server.name} has failed or runs no server",
                    "correct it, and run the command again",
                )
            )
        self._do(run, Phase.START)
        self._end(run)

    def _do(self, run: HostRun, phase: Phase) -> None:
        for step in run.plan.of(phase):
            if run.has_failed:
                return
            self._view.step(run.name, step.text)
            try:
                target = self._server if step.on_server else run
                target.carry_out(step, self._payload(run, step))
                if target is not run:
                    run.done += 1
            except HostError as failure:
                run.fail(failure)
            self._note_step(run)

    def _note_step(self, run: HostRun) -> None:
        """Report to the progress view whether the present step of a host succeeded."""
        if run.has_failed:
            self._view.fail(run.name, run.problems[-1].check)
        else:
            self._view.wait(run.name)

    def _end(self, run: HostRun) -> None:
        text = "done" if run.plan.steps else "nothing to change"
        if run.has_failed:
            self._view.fail(run.name, run.problems[-1].check)
        self._view.end(run.name, "FAILED" if run.has_failed else text)

    def _payload(self, run: HostRun, step: Step) -> bytes:
        match step.payload:
            case Payload.WHEELS:
                assert run.facts is not None
                return self._archive(step.arguments["wheels"], run.facts.magic)
            case Payload.TOKEN:
                arguments = token_arguments(self._cluster, run.host)
                made = self._server.session.call(
                    "run-server-command", arguments, step="make a join token on the server's host"
                )
                return str(made["stdout"]).strip().encode("ascii") + b"\n"
        return b""

    def _archive(self, wheels: dict[str, str], magic: str) -> bytes:
        """Return an archive of wheels for a host, in tar format.

        The archive has compiled modules, too, if ``magic``, the bytecode version of the host's
        Python, is that of this Python.
        """
        compiled = magic == MAGIC_NUMBER.hex()
        key = (compiled, *wheels)
        with self._archive_lock:
            if key not in self._archives:
                folder = self._request.wheelhouse
                self._archives[key] = pack_wheels(folder, wheels, compiled=compiled)
            return self._archives[key]

    def _each(self, runs: Sequence[HostRun], work: Callable[[HostRun], None]) -> None:
        """Call ``work`` for several hosts at the same time, in threads."""
        if not runs:
            return
        with ThreadPoolExecutor(self._request.parallel, "host") as pool:
            for future in [pool.submit(work, run) for run in runs]:
                future.result()
