"""``pliant experiment``: run the experiments of published papers and compare the results."""

import argparse
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pliant.core.support.command_line import CommandParser
from pliant.simulator.experiments.definition.definitions import Experiment, ExperimentError
from pliant.simulator.experiments.definition.reading import find_experiment, known_experiments

# Imported only when an experiment runs, so that --help does not load the simulator.
if TYPE_CHECKING:
    from pliant.simulator.experiments.results import ExperimentOutcome

PROG = "pliant experiment"
INTERRUPTED = 130
_UNITS = {"s": 1, "m": 60, "h": 3600}


def main(argv: Sequence[str] | None = None) -> int:
    """Run published experiments, and compare the results with the values in the papers."""
    options = _parser().parse_args(argv)
    try:
        return int(options.act(options))
    except ExperimentError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            f"\n{PROG}: interrupted; finished runs are kept, and the same command continues",
            file=sys.stderr,
        )
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog=PROG,
        description="Run experiments of published papers in the simulator, and compare.",
        epilog="exit codes: 0 done, 1 the request failed, 2 wrong usage, 130 interrupted",
    )
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="list | show | run | report"
    )
    listing = actions.add_parser("list", help="name the experiments")
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.set_defaults(act=_list)
    show = actions.add_parser("show", help="describe experiments without running them")
    show.add_argument("name", nargs="+", help="a name from the list, or the path of a YAML file")
    show.set_defaults(act=_show)
    run = actions.add_parser("run", help="run experiments, and print their results")
    run.add_argument("name", nargs="+", help="a name from the list, or the path of a YAML file")
    run.add_argument("--json", action="store_true", help="a list of rows, as JSON")
    run.set_defaults(act=_run)
    report = actions.add_parser(
        "report", help="run what is missing, and write a report as Markdown and HTML with plots"
    )
    report.add_argument("name", nargs="*", help="default: all of them")
    report.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        default=Path("experiment-report"),
        help="folder of the report (%(default)s)",
    )
    report.add_argument(
        "--real",
        type=Path,
        metavar="FILE",
        help="the results of real jobs that a validation has written (real_runs.json)",
    )
    report.set_defaults(act=_report)
    for command in (run, report):
        _add_run_options(command)
    return parser


def _add_run_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seeds", type=_at_least(2), metavar="N", help="runs of each line")
    command.add_argument(
        "--jobs",
        type=_at_least(1),
        metavar="N",
        help="jobs of each workload; printed totals are scaled to that many",
    )
    command.add_argument(
        "--within",
        type=_time,
        metavar="TIME",
        help="do as many runs as this time allows, such as 20m, in turn from all experiments; "
        "the same command does more of them (default: all runs)",
    )
    command.add_argument(
        "--processes",
        type=_at_least(1),
        metavar="N",
        default=os.cpu_count() or 1,
        help="simulations at once (%(default)s)",
    )
    command.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        default=Path("experiment-results"),
        help="folder with the results of finished runs, which are not repeated (%(default)s)",
    )


def _at_least(least: int) -> Callable[[str], int]:
    """Return a converter for argparse that accepts whole numbers of at least ``least``."""

    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise argparse.ArgumentTypeError(f"expected a whole number >= {least}, not {text!r}")
        return int(text)

    return number


def _time(text: str) -> str:
    """Check a time such as ``90s``, ``20m`` or ``1h30m``, for argparse."""
    if not re.fullmatch(r"(?a)(\d+[smh])+", text):
        raise argparse.ArgumentTypeError(f"expected a time such as 90s, 20m or 1h30m, not {text!r}")
    return text


def _seconds(text: str) -> float:
    """Convert a time such as ``1h30m``, which `_time` has checked, to seconds."""
    return sum(int(part[:-1]) * _UNITS[part[-1]] for part in re.findall(r"\d+[smh]", text))


def _list(options: argparse.Namespace) -> int:
    found = [find_experiment(name) for name in known_experiments()]
    if options.json:
        keys = ("name", "title", "source")
        print(json.dumps([{key: getattr(item, key) for key in keys} for item in found], indent=2))
        return 0
    width = max((len(item.name) for item in found), default=0)
    for item in found:
        print(f"{item.name:{width}}  {item.title} ({item.source})")
    return 0


def _show(options: argparse.Namespace) -> int:
    from pliant.simulator.experiments.reporting.report import description

    print("\n\n".join(description(find_experiment(name)) for name in options.name))
    return 0


def _run(options: argparse.Namespace) -> int:
    from pliant.simulator.experiments.reporting.report import as_json, as_text

    deadline = _deadline(options)
    outcomes = _outcomes([find_experiment(name) for name in options.name], options, deadline)
    if options.json:
        print(json.dumps([row for outcome in outcomes for row in as_json(outcome)], indent=2))
    else:
        print("\n\n".join(map(as_text, outcomes)))
    return 0


def _report(options: argparse.Namespace) -> int:
    from pliant.simulator.experiments.reporting.real_runs import read_real_runs
    from pliant.simulator.experiments.reporting.report_files import (
        prepare_folder,
        time_to_write,
        write_report,
    )
    from pliant.simulator.experiments.running.workload_logs import missing_logs

    deadline = _deadline(options)
    real = read_real_runs(options.real) if options.real else []
    chosen = [find_experiment(name) for name in options.name or known_experiments()]
    lacking = {} if options.name else {each.name: missing_logs(each) for each in chosen}
    chosen = [each for each in chosen if not lacking.get(each.name)]
    left_out = [f"{name} needs {', '.join(logs)}" for name, logs in lacking.items() if logs]
    for text in left_out:
        print(f"{PROG}: left out: {text}, which is not in $PLIANT_WORKLOADS", file=sys.stderr)
    prepare_folder(options.out)
    words = [*PROG.split(), "report", *options.name]
    for key in ("seeds", "jobs", "real"):
        if getattr(options, key) is not None:
            words += [f"--{key}", str(getattr(options, key))]
    if deadline is not None:
        words += ["--within", options.within]
        # At least half of the time is for runs, so that a repeated command makes progress.
        deadline -= min(time_to_write(chosen), _seconds(options.within) / 2)
    outcomes = _outcomes(chosen, options, deadline)
    for path in write_report(options.out, outcomes, shlex.join(words), real, left_out):
        print(path)
    return 0


def _deadline(options: argparse.Namespace) -> float | None:
    """Return when the command should end, on the monotonic clock; None if there is no limit."""
    return None if options.within is None else time.monotonic() + _seconds(options.within)


def _outcomes(
    experiments: "list[Experiment]", options: argparse.Namespace, deadline: float | None
) -> "list[ExperimentOutcome]":
    """Run the simulations that have no stored result yet; return the outcome of each experiment.

    With a deadline, the outcomes are made of the runs that have ended by then.
    """
    from pliant.simulator.experiments.results import conclude
    from pliant.simulator.experiments.running.measuring import (
        ProgressLine,
        Scale,
        measure,
        obsolete_results,
    )
    from pliant.simulator.experiments.running.results_store import ResultsStore

    scale = Scale(options.seeds, options.jobs)
    store = ResultsStore(options.results)
    _report_obsolete(obsolete_results(experiments, store, scale))
    progress = ProgressLine(deadline)
    measured = measure(
        experiments,
        store,
        scale=scale,
        processes=options.processes,
        progress=progress,
        deadline=deadline,
    )
    progress.end()
    return [conclude(each, runs, scale) for each, runs in zip(experiments, measured, strict=True)]


def _report_obsolete(found: Sequence[str]) -> None:
    """Print the first five descriptions of obsolete stored results, and how many more there are."""
    few = 5
    for text in found[:few]:
        print(f"{PROG}: not used: {text}", file=sys.stderr)
    if len(found) > few:
        print(f"{PROG}: not used: {len(found) - few} more files", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
