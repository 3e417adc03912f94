"""``pliant experiment``: run the experiments of published papers and compare the results."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pliant.core.support.command_line import CommandParser
from pliant.simulator.experiments.definitions import (
    Experiment,
    ExperimentError,
    find_experiment,
    known_experiments,
)

# Imported only when an experiment runs, so that --help does not load the simulator.
if TYPE_CHECKING:
    from pliant.simulator.experiments.results import Line

PROG = "pliant experiment"


def main(argv: Sequence[str] | None = None) -> int:
    """Run published experiments and compare the results with the printed values."""
    options = _parser().parse_args(argv)
    try:
        return int(options.act(options))
    except ExperimentError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog=PROG,
        description="Run experiments of published papers in the simulator, and compare.",
        epilog="exit codes: 0 done, 1 the request failed, 2 wrong usage",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="list | run | report")
    listing = actions.add_parser("list", help="name the experiments")
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.set_defaults(act=_list)
    run = actions.add_parser("run", help="run one")
    run.add_argument("name", help="a name from the list, or the path of a YAML file")
    run.add_argument("--json", action="store_true", help="a list of rows, as JSON")
    run.set_defaults(act=_run)
    report = actions.add_parser("report", help="run several, and write them up as Markdown")
    report.add_argument("name", nargs="*", help="default: all of them")
    report.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")
    report.set_defaults(act=_report)
    for command in (run, report):
        command.add_argument("--seeds", type=_at_least(2), metavar="N", help="runs of each line")
        command.add_argument(
            "--jobs",
            type=_at_least(1),
            metavar="N",
            help="jobs of each workload; printed totals are scaled to that many",
        )
        command.add_argument(
            "--processes",
            type=_at_least(1),
            metavar="N",
            default=os.cpu_count() or 1,
            help="simulations at once (%(default)s)",
        )
    return parser


def _at_least(least: int) -> Callable[[str], int]:
    """Return a type of arguments: whole numbers of at least ``least``."""

    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise argparse.ArgumentTypeError(f"expected a whole number >= {least}, not {text!r}")
        return int(text)

    return number


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


def _run(options: argparse.Namespace) -> int:
    from pliant.simulator.experiments.report import as_json, as_text

    experiment = find_experiment(options.name)
    lines = _lines(experiment, options)
    print(json.dumps(as_json(lines), indent=2) if options.json else as_text(experiment, lines))
    return 0


def _report(options: argparse.Namespace) -> int:
    from pliant.simulator.experiments.report import as_markdown

    chosen = [find_experiment(name) for name in options.name or known_experiments()]
    if options.out is not None:
        _check_writable(options.out)
    sections = [as_markdown(item, _lines(item, options)) for item in chosen]
    text = "\n".join(["# Experiments", "", *sections])
    if options.out is None:
        print(text)
        return 0
    try:
        options.out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExperimentError(f"--out {options.out}: cannot be written: {error.strerror}") from None
    return 0


def _check_writable(path: Path) -> None:
    """Check before hours of work that the result can be written. An existing file is kept."""
    is_new = not path.exists()
    try:
        with path.open("a", encoding="utf-8"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise ExperimentError(f"--out {path}: cannot be written: {error.strerror}") from None


def _lines(experiment: Experiment, options: argparse.Namespace) -> "list[Line]":
    from pliant.simulator.experiments.results import count_runs, run_experiment

    total = count_runs(experiment, options.seeds)
    shown = sys.stderr.isatty()

    def progress(done: int) -> None:
        """Update one line on a terminal; otherwise print ten lines in total."""
        text = f"{experiment.name}: {done} of {total} runs"
        if shown:
            print(f"\r{text}", end="\n" if done == total else "", file=sys.stderr, flush=True)
        elif done * 10 // total > (done - 1) * 10 // total:
            print(text, file=sys.stderr, flush=True)

    return run_experiment(
        experiment,
        processes=options.processes,
        progress=progress,
        seeds=options.seeds,
        jobs=options.jobs,
    )


if __name__ == "__main__":
    sys.exit(main())
