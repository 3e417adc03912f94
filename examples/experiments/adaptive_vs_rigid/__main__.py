"""Repeat experiments of published papers with real jobs: see docs/experiments.md."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from pliant.client import ClientError
from pliant.core.support.command_line import CommandParser
from pliant.examples.experiments.adaptive_vs_rigid.cluster import results_folder
from pliant.examples.experiments.adaptive_vs_rigid.cost_report import write_cost
from pliant.examples.experiments.adaptive_vs_rigid.experiment_rows import SCALES, select_rows
from pliant.examples.experiments.adaptive_vs_rigid.recording import read_results
from pliant.examples.experiments.adaptive_vs_rigid.resize_cost import (
    PUBLISHED_EDGE,
    measure_cost,
)
from pliant.examples.experiments.adaptive_vs_rigid.running import run_rows
from pliant.examples.experiments.adaptive_vs_rigid.table import results_table
from pliant.examples.experiments.adaptive_vs_rigid.validation import validate
from pliant.examples.experiments.adaptive_vs_rigid.validation_report import write_validation
from pliant.simulator.inputs.simulation_errors import SimulationError

PROG = "python -m pliant.examples.experiments.adaptive_vs_rigid"
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        return int(options.act(options))
    except (SimulationError, ClientError, ValueError, OSError) as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            f"{PROG}: interrupted; finished rows are kept, and the same command continues",
            file=sys.stderr,
        )
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog=PROG,
        description="Run published experiments with real jobs on a cluster of this machine, with "
        "the jobs of the simulation, scaled in time.",
        epilog="exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="run | validate | cost")
    run = actions.add_parser("run", help="run the rows that have no result yet")
    run.set_defaults(act=_run)
    run.add_argument(
        "name", nargs="*", help=f"experiments or YAML files (default: {', '.join(SCALES)})"
    )
    run.add_argument(
        "--where",
        action="append",
        default=[],
        type=_where,
        metavar="AXIS=VALUE,...",
        help="only the rows with these values of an axis",
    )
    run.add_argument("--jobs", type=_count, metavar="N", help="jobs of each row")
    run.add_argument(
        "--seed", type=_count, default=1, metavar="N", help="of the jobs (%(default)s)"
    )
    run.add_argument(
        "--scale",
        type=_scale,
        metavar="X",
        help="wall-clock seconds for each second of the model (0.1; 0.5 for kumar-4.4)",
    )
    check = actions.add_parser(
        "validate", help="simulate the runs that have a result with their costs, and compare"
    )
    check.set_defaults(act=_validate)
    check.add_argument(
        "--out",
        type=Path,
        default=Path("real-validation"),
        metavar="DIR",
        help="folder of the report (%(default)s)",
    )
    _add_cost(actions)
    for action in (run, check):
        action.add_argument(
            "--results",
            type=Path,
            default=Path("real-results"),
            metavar="DIR",
            help="folder of the results (%(default)s)",
        )
    return parser


def _add_cost(actions: argparse._SubParsersAction[CommandParser]) -> None:
    cost = actions.add_parser(
        "cost", help="measure what shrinking and expanding the example md costs"
    )
    cost.set_defaults(act=_cost)
    cost.add_argument(
        "--processors",
        type=_even,
        default=max(2, len(os.sched_getaffinity(0)) // 2 * 2),
        metavar="N",
        help="processors of the cluster, an even number (by default as many as CPUs)",
    )
    cost.add_argument(
        "--edge",
        type=_edge,
        default=12,
        metavar="N",
        help=f"unit cells along an edge of the box, {PUBLISHED_EDGE} in the paper (%(default)s)",
    )
    cost.add_argument(
        "--repeats", type=_count, default=5, metavar="N", help="resizes of each kind (%(default)s)"
    )
    cost.add_argument(
        "--out",
        type=Path,
        default=Path("real-cost"),
        metavar="DIR",
        help="folder of the report (%(default)s)",
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"expected a whole number >= 1, not {text!r}")
    return int(text)


def _even(text: str) -> int:
    if _count(text) % 2:
        raise argparse.ArgumentTypeError(f"expected an even number >= 2, not {text!r}")
    return int(text)


def _edge(text: str) -> int:
    if _count(text) < 8:
        raise argparse.ArgumentTypeError(f"expected a whole number >= 8, not {text!r}")
    return int(text)


def _scale(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"expected a number above 0, up to 100, not {text!r}")
    return value


def _where(text: str) -> tuple[str, list[str]]:
    axis, sign, values = text.partition("=")
    if not (axis and sign and values):
        raise argparse.ArgumentTypeError(
            f"expected AXIS=VALUE,..., as in malleable_pct=0,100, not {text!r}"
        )
    return axis, values.split(",")


def _run(options: argparse.Namespace) -> int:
    rows = select_rows(
        options.name or list(SCALES),
        dict(options.where),
        jobs=options.jobs,
        seed=options.seed,
        scale=options.scale,
    )
    with results_folder(options.results) as folder:
        # A kill by TERM takes the cluster down as Ctrl-C does.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        results = run_rows(rows, folder)
    print(results_table(rows, results))
    return 0


def _validate(options: argparse.Namespace) -> int:
    found = [validate(result) for result in read_results(options.results)]
    for path in write_validation(options.out, found):
        print(path)
    return 0


def _cost(options: argparse.Namespace) -> int:
    with results_folder(options.out) as folder:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        found = measure_cost(
            folder, processors=options.processors, edge=options.edge, repeats=options.repeats
        )
        paths = write_cost(folder, found)
    print((folder / "cost.md").read_text(encoding="utf-8"))
    for path in paths:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
