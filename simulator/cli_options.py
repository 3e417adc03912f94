"""The options of ``pliant simulate``, and the settings and workloads made from them."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pliant.core.support.command_line import CommandParser
from pliant.simulator.user_limit_and_share_options import (
    add_output_options,
    add_scheduling_options,
    add_workload_options,
    make_shares,
    make_user_limits,
    with_order,
)

if TYPE_CHECKING:
    from pliant.simulator.inputs.settings import Settings
    from pliant.simulator.inputs.workload import Workload

PROG = "pliant simulate"

DEFAULT_STRATEGY = "equipartition"
#: Sizes and speedup of malleable jobs, relative to the request: from half of it to twice of it, and
#: Downey's model with an average parallelism equal to the request. A variance of 1 is the middle of
#: Downey's range: on half as many processors a job takes 1.7 times as long, and on twice as many it
#: takes a third less.
DEFAULT_SIZES, DEFAULT_SPEEDUP = "p/2-2p", "downey:p,1"
#: Seconds to write or read a checkpoint, as in ``costs.SAVE``, which --help does not import.
SAVE_S = 30
#: The values of --backfill, as in ``fcfs+easy``.
BACKFILLS = ("none", "easy", "conservative")

_T = TypeVar("_T")

_EPILOG = """\
The workload is a log in the Standard Workload Format, plain or gzip, or a model with parameters:
downey, ghafoor, koala, kumar or lublin, such as `kumar:gap=60,minpe=16-64`.
Costs are seconds: S is constant, A-B a ramp that makes low costs likely.
Exit codes: 0 done, 1 the workload or the strategy failed, 2 wrong usage."""


class SimulatorParser(CommandParser):
    """A parser that reports wrong usage in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2."""
        self.exit(2, f"{self.prog}: {message} (try `{self.prog} --help`)\n")


@dataclass(frozen=True, slots=True)
class _Number:
    """Converts the text of an option to a number within bounds, for argparse."""

    read: type[int] | type[float]
    low: float
    expected: str
    high: float = math.inf

    def __call__(self, text: str) -> int | float:
        try:
            value = self.read(text)
        except ValueError:
            value = math.nan
        if not (self.low <= value <= self.high and math.isfinite(value)):
            raise argparse.ArgumentTypeError(f"expected {self.expected}, not {text!r}")
        return value


_COUNT = _Number(int, 1, "a whole number >= 1")
_SECONDS = _Number(float, 0, "seconds >= 0")
_PERCENT = _Number(float, 0, "a share between 0 and 100", 100)


def parser() -> argparse.ArgumentParser:
    """Return the parser for all options of ``pliant simulate``."""
    made = SimulatorParser(
        prog=PROG,
        description="Simulate a workload with the core and the strategies that clusters run.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _workload(made.add_argument_group("workload"))
    _machine(made.add_argument_group("machine"))
    _scheduling(made.add_argument_group("scheduling"))
    _output(made.add_argument_group("output"))
    return made


def _workload(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("--workload", required=True, metavar="FILE|MODEL", help="a log, or a model")
    add("--jobs", type=_COUNT, metavar="N", help="only the first N jobs; N jobs of a model")
    add("--side-file", metavar="FILE.csv", help="sizes, costs, contracts, priorities by job number")
    add("--malleable", type=_PERCENT, metavar="PCT", help="make PCT percent of the jobs malleable")
    add(
        "--sizes",
        metavar="GRAMMAR",
        help="sizes of malleable jobs, such as 2-64:pow2, or 1-2p for a request of p (p/2-2p)",
    )
    add("--speedup", metavar="MODEL",
        help="speedup of malleable jobs: linear, amdahl:F, downey:A,SIGMA, table:1=1,...; p is "
        "their request (downey:p,1, or the speedup in the workload)")  # fmt: skip
    add(
        "--malleable-spread",
        choices=("even", "random"),
        default="even",
        help="choose malleable jobs at equal distances or at random (even)",
    )
    add(
        "--evolving",
        type=_PERCENT,
        metavar="PCT",
        help="let PCT percent of the jobs ask for other sizes while they run",
    )
    add("--memory", action="store_true",
        help="let the jobs of a log need the memory that they request (field 10)")  # fmt: skip
    add("--priorities", metavar="PCT:N,...",
        help="give PCT percent of the jobs priority N, as in 10:5,20:-1 (0)")  # fmt: skip
    add_workload_options(group)
    add("--shrinking-factor", type=_Number(float, 1e-9, "a factor > 0"), metavar="F",
        help="multiply all submit times by F")  # fmt: skip
    add(
        "--seed",
        type=_Number(int, 0, "a whole number >= 0"),
        default=0,
        metavar="K",
        help="seed of all random numbers (0)",
    )
    add("--replications", type=_COUNT, default=1, metavar="R",
        help="runs with seeds K, K+1, ...: means with 95 %% confidence intervals (1)")  # fmt: skip


def _machine(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add(
        "--processors",
        type=_COUNT,
        metavar="P",
        help="size of the machine (the size in the workload)",
    )
    add("--clusters", metavar="NAME:P,...", help="several clusters instead of one machine")
    add("--node-size", type=_COUNT, default=0, metavar="N",
        help="processors of a node (each cluster is one node)")  # fmt: skip
    add("--nodes", metavar="NxS:...",
        help="nodes that differ, such as 4x16:mem=64G,gpu=2,prop=fast+8x8: 4 nodes of 16 slots, "
        "8 of 8")  # fmt: skip
    add("--node-failures", metavar="MTBF/MTTR|FILE.csv",
        help="mean seconds between failures and to repair, or a list node,down,up")  # fmt: skip


def _scheduling(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add(
        "--strategy",
        action="append",
        metavar="NAME",
        help="repeatable: strategies are compared on the same random numbers (equipartition)",
    )
    add("--backfill", choices=BACKFILLS, help="backfilling of a queueing strategy")
    add_scheduling_options(group)
    add("--strategy-option", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    add("--negotiation-cost", default="0", metavar="S|A-B", help="seconds of each negotiation (0)")
    add("--negotiation", choices=("sequential", "parallel"), default="sequential",
        help="hold negotiations of a cycle in sequence or in parallel (sequential)")  # fmt: skip
    add("--adaptation-cost", default="0", metavar="S|A-B",
        help="seconds for each changed processor (0)")  # fmt: skip
    add("--checkpoint-cost", default=str(SAVE_S), metavar="S|A-B",
        help=f"seconds in which a suspended job writes its checkpoint ({SAVE_S})")  # fmt: skip
    add("--restart-cost", default=str(SAVE_S), metavar="S|A-B",
        help=f"seconds in which a resumed job reads its checkpoint ({SAVE_S})")  # fmt: skip
    add("--answers", default="always", metavar="MODEL",
        help="how jobs answer offers: always, bounds, pow2, reluctant, countering, random:P, "
        "random:P:partial (always)")  # fmt: skip
    add("--safe-point-interval", type=_SECONDS, default=0.0, metavar="S",
        help="seconds between two safe points (0: a job is always at one)")  # fmt: skip
    add("--quiet", type=_SECONDS, metavar="S",
        help="seconds until a job that refused is asked again (until the next event)")  # fmt: skip


def _output(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("--json", action="store_true", help="metrics as one JSON object")
    add("--jobs-out", metavar="FILE.csv", help="a line for each job of each run")
    add("--events-out", metavar="FILE.jsonl", help="the history of the first run, as JSON lines")
    add("--gantt", metavar="FILE", help="picture of what each job held over time")
    add("--utilization", metavar="FILE", help="picture of how many processors were in use")
    add("--queue", metavar="FILE", help="picture of how many jobs waited")
    add("--sizes-over-time", metavar="FILE", help="picture of the jobs resized most often")
    add("--comparison", metavar="FILE",
        help="picture of the metrics of each strategy; all pictures are SVG, or PNG if the name "
        "of the file ends with .png")  # fmt: skip
    add_output_options(group)
    add("--debug", action="store_true", help="check the core after every event (slow)")


def make_workload(options: argparse.Namespace, seed: int, machine: int | None) -> "Workload":
    """Read the jobs from a log or make them by a model, then apply the options to them.

    Args:
        options: the options of the command line.
        seed: the seed of all random numbers.
        machine: the processors of the machine if the options state them; otherwise None.

    Raises:
        WorkloadError, SettingsError: the workload or an option is invalid.
    """
    from pliant.simulator.inputs import models, swf, workload_options
    from pliant.simulator.inputs.simulation_errors import SettingsError

    for name in ("sizes", "speedup"):
        if getattr(options, name) is not None and options.malleable is None:
            raise SettingsError(f"--{name}: applies to malleable jobs only; add --malleable PCT")
    if options.memory and models.is_model(options.workload):
        raise SettingsError(
            "--memory: jobs of a model request no memory; use a log, or --side-file"
        )
    given = {"jobs": options.jobs, "processors": machine}
    if models.is_model(options.workload):
        known = {key: value for key, value in given.items() if value is not None}
        workload = models.make_workload(options.workload, **known, seed=seed)
    else:
        workload = swf.read_swf(options.workload, **given, memory=options.memory)
    if options.shrinking_factor is not None:
        workload = models.shrink(workload, options.shrinking_factor)
    if options.side_file:
        workload = workload_options.merge_side_file(workload, options.side_file)
    if options.malleable is not None:
        sizes, speedup = malleable_rules(options)
        workload = models.make_malleable(
            workload,
            options.malleable,
            _named("--sizes", models.parse_size_rule, sizes),
            options.malleable_spread,
            Random(f"{seed}:malleable"),
            None if speedup is None else _named("--speedup", models.parse_speedup_rule, speedup),
        )
    if options.evolving:
        workload = models.make_evolving(workload, options.evolving, Random(f"{seed}:evolving"))
    if options.priorities is not None:
        shares = _named("--priorities", models.parse_priorities, options.priorities)
        workload = models.give_priorities(workload, shares, Random(f"{seed}:priorities"))
    if options.users is not None:
        parts = _named("--users", models.parse_users, options.users)
        workload = models.give_users(workload, parts, Random(f"{seed}:users"))
    return workload


def malleable_rules(options: argparse.Namespace) -> tuple[str, str | None]:
    """Return the texts of two rules: for the sizes of malleable jobs, and for their speedup.

    The second one is None if the jobs keep the speedups that they have in the workload.
    """
    from pliant.simulator.inputs import models

    sizes = DEFAULT_SIZES if options.sizes is None else options.sizes
    if options.speedup is not None:
        return sizes, options.speedup
    # Logs and models of rigid jobs have no speedups; the other models have.
    says_it = models.is_model(options.workload) and not options.workload.startswith("lublin")
    return sizes, None if says_it or options.side_file else DEFAULT_SPEEDUP


def named_machine(options: argparse.Namespace, settings: "Settings") -> int | None:
    """Return the number of processors that the options state; None if they state none.

    Args:
        options: the options of the command line.
        settings: the settings made from them, which have the sum over clusters or nodes.
    """
    return settings.total if options.processors or options.clusters or options.nodes else None


def make_settings(options: argparse.Namespace) -> "list[Settings]":
    """Return the settings of the simulation with each chosen strategy.

    If the options do not state the size of the machine, the settings have one processor for now.

    Raises:
        SettingsError: an option is invalid. The message names it and says what is expected.
    """
    from pliant.simulator.inputs.costs import parse_cost
    from pliant.simulator.inputs.failures import NO_FAILURES, parse_failures
    from pliant.simulator.inputs.nodes import parse_nodes
    from pliant.simulator.inputs.settings import Settings, parse_clusters

    failures = options.node_failures
    common = Settings(
        options.processors or 1,
        node_size=options.node_size,
        negotiation_cost=_named("--negotiation-cost", parse_cost, options.negotiation_cost),
        negotiation=options.negotiation,
        adaptation_cost=_named("--adaptation-cost", parse_cost, options.adaptation_cost),
        checkpoint_cost=_named("--checkpoint-cost", parse_cost, options.checkpoint_cost),
        restart_cost=_named("--restart-cost", parse_cost, options.restart_cost),
        answers=options.answers,
        safe_point_interval=options.safe_point_interval,
        quiet_s=options.quiet,
        failures=NO_FAILURES if failures is None else parse_failures(failures),
        shares=make_shares(options),
        user_limits=make_user_limits(options),
        by_user=options.by_user,
        check=options.debug,
        keep_jobs=bool(options.jobs_out or options.queue),
        keep_spans=bool(options.utilization or options.sizes_over_time),
    )
    if options.clusters:
        clusters = _named("--clusters", parse_clusters, options.clusters)
        common = replace(common, clusters=clusters, processors=options.processors or 0)
    if options.nodes:
        groups = _named("--nodes", parse_nodes, options.nodes)
        common = replace(common, nodes=groups, processors=options.processors or 0)
    return [
        replace(common, strategy=name, options=own) for name, own in _chosen_strategies(options)
    ]


def _chosen_strategies(options: argparse.Namespace) -> list[tuple[str, dict[str, object]]]:
    """Return the chosen strategies, each with those of the user's options that the strategy has."""
    from pliant.simulator.inputs.simulation_errors import SettingsError
    from pliant.strategies import strategy_options

    # A queue order with backfilling is a strategy of its own.
    names = options.strategy or [(options.backfill and options.order) or DEFAULT_STRATEGY]
    given = with_order(options.order, names, _strategy_options(options.strategy_option))
    if len(names) == 1:
        return [with_backfill(names[0], options.backfill, given)]
    found: list[tuple[str, dict[str, object]]] = []
    taken: set[str] = set()
    for name in names:
        known = {option.name.replace("_", "-") for option in strategy_options(name)}
        own = {key: value for key, value in given.items() if key.replace("_", "-") in known}
        taken |= own.keys()
        chosen = with_backfill(name, options.backfill, own)
        if chosen in found:
            raise SettingsError(f"--strategy {name}: given twice; name each strategy once")
        found.append(chosen)
    unknown = sorted(given.keys() - taken)
    if unknown:
        raise SettingsError(
            f"--strategy-option {unknown[0]}: none of {', '.join(names)} has this option"
        )
    return found


def _named(option: str, read: Callable[[str], _T], text: str) -> _T:
    from pliant.core.values.sizes import SizesError
    from pliant.core.values.speedup import SpeedupError
    from pliant.simulator.inputs.simulation_errors import SettingsError

    try:
        return read(text)
    except (SettingsError, SizesError, SpeedupError) as error:
        raise SettingsError(f"{option}: {error}") from None


def with_backfill(
    name: str, backfill: str | None, options: Mapping[str, object]
) -> tuple[str, dict[str, object]]:
    """Return a strategy with ``--backfill`` applied: ``fcfs`` with ``easy`` becomes ``fcfs+easy``.

    Raises:
        SettingsError: the strategy or its options state another backfilling rule, or the strategy
            does not let users choose one.
    """
    from pliant.simulator.inputs.simulation_errors import SettingsError
    from pliant.strategies import known_strategies, strategy_options

    if backfill is None:
        return name, {**options}
    base, _, own = name.partition("+")
    if own in BACKFILLS:
        if own != backfill:
            raise SettingsError(
                f"--backfill {backfill}: strategy {name} backfills otherwise; "
                f"write --strategy {base} with it"
            )
        return name, {**options}
    known = known_strategies()
    if f"{name}+{backfill}" in known:
        return f"{name}+{backfill}", {**options}
    if any(option.name == "backfill" for option in strategy_options(name)):
        if options.get("backfill", backfill) != backfill:
            raise SettingsError(
                f"--backfill {backfill}: --strategy-option says backfill={options['backfill']}"
            )
        return name, {**options, "backfill": backfill}
    if backfill == "none" and f"{name}+easy" in known:
        return name, {**options}
    raise SettingsError(
        f"--backfill {backfill}: strategy {name} has no backfilling to choose; leave it out"
    )


def _strategy_options(words: Sequence[str]) -> dict[str, object]:
    from pliant.simulator.inputs.simulation_errors import SettingsError

    values: dict[str, object] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise SettingsError(f"--strategy-option {word!r}: write NAME=VALUE")
        if name in values:
            raise SettingsError(f"--strategy-option {name}: given twice")
        values[name] = value
    return values
