"""``pliant deploy FILE``: install, check, upgrade and remove Pliant on the hosts of a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pliant.client.client_errors import ClientError, UsageError
from pliant.client.terminal.node_names import node_names
from pliant.client.terminal.number_arguments import bounded_int
from pliant.client.terminal.output import print_json, print_text
from pliant.client.terminal.tables import clean, table

if TYPE_CHECKING:
    from pliant.deploy.planning.cluster import Cluster
    from pliant.deploy.planning.facts import HostFacts
    from pliant.deploy.rollout.deployment import Mode
    from pliant.deploy.rollout.host_run import HostRun

_MAX_PARALLEL = 256
_MODES = ("check", "upgrade", "rollback", "remove")


def add_hosts_action(actions: Any) -> None:
    """Add the action ``hosts`` to the parser of ``pliant deploy``."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "hosts",
        help="install Pliant on the hosts of a file, over SSH; the word may be left out",
        description="Install Pliant on the hosts of a file, over SSH, and start its daemons. What "
        "is there already is kept. `pliant deploy hosts.yaml` does the same.",
    )
    parser.add_argument("file", metavar="FILE", help="the hosts, such as hosts.yaml")
    parser.add_argument(
        "--wheelhouse",
        metavar="DIR",
        help="folder of wheels, see `pliant deploy wheels` (`wheelhouse` in the file)",
    )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="HOSTS",
        help="only these hosts, such as n[01-04]; may be repeated",
    )
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--check", action="store_true", help="report on each host, change nothing")
    modes.add_argument(
        "--upgrade",
        action="store_true",
        help="replace another release, and restart the daemons one host after the other",
    )
    modes.add_argument(
        "--rollback", action="store_true", help="return to the release before the last upgrade"
    )
    modes.add_argument(
        "--remove", action="store_true", help="remove everything, with the state of the daemons"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the steps of each host, change nothing"
    )
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="restart the daemons of the next host even if a host has failed",
    )
    parser.add_argument(
        "--end-jobs", action="store_true", help="with --remove: end jobs that run on the hosts"
    )
    parser.add_argument("--yes", action="store_true", help="with --remove: do not ask")
    parser.add_argument(
        "--parallel",
        type=bounded_int(1, _MAX_PARALLEL),
        default=16,
        metavar="N",
        help="how many hosts are changed at the same time (16)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(act=_deploy)


def _deploy(options: argparse.Namespace) -> int:
    from pliant.deploy.planning.hosts_file import read_hosts_file
    from pliant.deploy.rollout.deployment import Deployment, DeployRequest, Mode
    from pliant.deploy.rollout.progress import progress_view
    from pliant.deploy.wheelhouse import read_wheelhouse

    mode = next((Mode(name) for name in _MODES if getattr(options, name)), Mode.DEPLOY)
    cluster = read_hosts_file(options.file)
    hosts = cluster.select(node_names(options.limit))
    if options.end_jobs and mode is not Mode.REMOVE:
        raise UsageError("--end-jobs: only with --remove")
    folder = options.wheelhouse or cluster.wheelhouse
    if mode in (Mode.DEPLOY, Mode.UPGRADE) and not folder:
        raise UsageError(
            "--wheelhouse: name the folder of wheels; make one with `pliant deploy wheels DIR`"
        )
    uses_wheels = mode in (Mode.DEPLOY, Mode.UPGRADE) or (mode is Mode.CHECK and folder)
    wheels = read_wheelhouse(folder) if uses_wheels else []
    if mode is Mode.REMOVE and not options.dry_run:
        _confirm(options, cluster, len(hosts))
    request = DeployRequest(
        mode,
        hosts,
        options.dry_run,
        options.parallel,
        options.end_jobs,
        folder,
        wheels,
        options.keep_going,
    )
    with progress_view([host.name for host in hosts], quiet=options.json) as view:
        deployment = Deployment(cluster, request, view)
        deployment.run()
    return _report(deployment.selected, mode, options)


def _confirm(options: argparse.Namespace, cluster: Cluster, hosts: int) -> None:
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("--remove: add --yes, because there is no terminal to ask")
    print_text(
        f"This removes Pliant from {hosts} hosts of cluster {cluster.name}, with the job database "
        "and the keys of the cluster if the server's host is among them."
    )
    try:
        typed = input("Type the name of the cluster to go on: ").strip()
    except EOFError:  # Ctrl-D
        typed = ""
    if typed != cluster.name:
        raise ClientError("nothing was removed")


def _report(runs: list[HostRun], mode: Mode, options: argparse.Namespace) -> int:
    if options.json:
        print_json([_record(run, options) for run in runs])
    elif mode == "check":
        print_text(_check_table(runs))
    elif options.dry_run:
        for run in runs:
            for line in _plan_lines(run):
                print_text(clean(line))
    for line in () if options.json else _problem_lines(runs):
        print_text(clean(line))
    if not options.json and mode != "check":
        print_text(_summary(runs, dry_run=options.dry_run))
    return 1 if any(run.has_failed for run in runs) else 0


def _outcome(run: HostRun, *, dry_run: bool) -> str:
    if run.has_failed:
        return "failed"
    if run.stopped_by:
        return "not restarted"
    if not run.plan.steps:
        return "unchanged"
    return "to change" if dry_run else "changed"


def _summary(runs: list[HostRun], *, dry_run: bool) -> str:
    outcomes = [_outcome(run, dry_run=dry_run) for run in runs]
    counts = [f"{outcomes.count(each)} {each}" for each in dict.fromkeys(outcomes)]
    if set(outcomes) == {"unchanged"}:
        return f"{len(runs)} hosts: nothing to change"
    return f"{len(runs)} hosts: {', '.join(counts)}"


def _plan_lines(run: HostRun) -> Iterator[str]:
    from pliant.deploy.planning.plan import describe

    if run.has_failed:
        return
    yield f"{run.name}:" if run.plan.steps else f"{run.name}: nothing to change"
    yield from (f"  {line}" for line in describe(run.plan.steps))


def _problem_lines(runs: list[HostRun]) -> Iterator[str]:
    for run in runs:
        for note in run.plan.notes:
            yield f"{run.name}: {note}"
        for problem in run.problems:
            remedy = f"; {problem.remedy}" if problem.remedy else ""
            yield f"{run.name}: {problem.check}: {problem.message}{remedy}"
    if stopped := [run for run in runs if run.stopped_by]:
        yield (
            f"{len(stopped)} hosts were not restarted, because {stopped[0].stopped_by} failed: "
            "correct it and run the command again, or add --keep-going"
        )


def _check_table(runs: list[HostRun]) -> str:
    rows = []
    for run in runs:
        facts = run.facts
        daemons = ", ".join(sorted(facts.daemons)) if facts else ""
        release = (
            facts.manifest.environment.removeprefix("env-") if facts and facts.manifest else ""
        )
        python = ".".join(map(str, facts.python)) if facts else ""
        rows.append(
            (
                run.name,
                ",".join(sorted(run.host.roles)),
                "PROBLEM" if run.has_failed else "good",
                python,
                _clock(facts) if facts else "",
                release or "none",
                daemons or "none",
            )
        )
    heads = ("HOST", "ROLE", "STATE", "PYTHON", "CLOCK", "RELEASE", "DAEMONS")
    return table(heads, rows)


def _clock(facts: HostFacts) -> str:
    """Return the offset of a host's clock from this machine's, such as ``+12 s``.

    Return "good" if the difference is not larger than the error of its measurement.
    """
    if abs(facts.clock_offset_s) <= facts.clock_error_s:
        return "good"
    return f"{facts.clock_offset_s:+.0f} s"


def _record(run: HostRun, options: argparse.Namespace) -> dict[str, Any]:
    facts = run.facts
    return {
        "host": run.name,
        "roles": sorted(run.host.roles),
        "outcome": _outcome(run, dry_run=options.dry_run),
        "problems": [
            {"check": each.check, "message": each.message, "remedy": each.remedy}
            for each in run.problems
        ],
        "notes": list(run.plan.notes),
        "steps": [step.text for step in run.plan.steps],
        "steps_done": run.done,
        "release": facts.manifest.environment if facts and facts.manifest else "",
        "daemons": {name: each.environment for name, each in facts.daemons.items()}
        if facts
        else {},
        "clock_offset_s": facts.clock_offset_s if facts else None,
    }
