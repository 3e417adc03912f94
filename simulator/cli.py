"""``pliant simulate``: simulate a workload, and write metrics, jobs, history and pictures."""

import contextlib
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

from pliant.simulator.cli_options import (
    PROG,
    make_settings,
    make_workload,
    malleable_rules,
    named_machine,
    parser,
)
from pliant.simulator.inputs.simulation_errors import SettingsError, SimulationError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pliant.charts.history_timeline import Recording
    from pliant.core.commands import Note
    from pliant.simulator.inputs.settings import Settings
    from pliant.simulator.inputs.workload import Workload
    from pliant.simulator.run.result import Result

#: Options for output files.
_PICTURES = ("gantt", "utilization", "queue", "sizes_over_time", "comparison")
#: Pictures that matplotlib draws.
_PLOTS = tuple(name for name in _PICTURES if name != "gantt")
_FILES = ("jobs_out", "events_out", *_PICTURES)
#: Options that may name input files.
_INPUTS = ("workload", "side_file", "node_failures")
#: Seconds until the first report of progress, and between two on a terminal or in a file.
_FIRST_AFTER_S, _TERMINAL_S, _FILE_S = 2.0, 0.5, 10.0
INTERRUPTED, BROKEN_PIPE = 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate a workload with the core and the strategies that clusters run."""
    options = parser().parse_args(argv)
    # Imported after parsing, so that --help does not load the strategies and the core.
    from pliant.simulator.inputs.workload import WorkloadError
    from pliant.strategies import UnknownStrategyError
    from pliant.strategies.interface.options import OptionError

    try:
        _run(options)
        sys.stdout.flush()
    except (SettingsError, OptionError, UnknownStrategyError) as error:
        return _fail(error, 2)
    except (SimulationError, WorkloadError) as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes again when it exits, into a pipe without a reader.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return 0


def _fail(error: Exception, code: int) -> int:
    text = " ".join(str(error).split())
    sys.stderr.write(f"{PROG}: {text}\n")
    return code


def _run(options: Namespace) -> None:
    from pliant.charts.history_timeline import Recording

    settings = make_settings(options)
    _refuse_one_file_twice(options)
    _require_matplotlib(options)
    if len(settings) > 1:
        _refuse_files_of_one(options)
    paths = {name: getattr(options, name) for name in _FILES}
    try:
        with contextlib.ExitStack() as stack:
            files = {name: _open(stack, name, path) for name, path in paths.items()}
            # Output of a strategy does not belong to the results.
            recording = Recording() if files["gantt"] else None
            with contextlib.redirect_stdout(sys.stderr):
                runs, first = _simulate(options, settings, files, recording)
            if recording is not None:
                _draw_gantt(options, recording, first, files["gantt"])
            _draw(options, runs, [each.label for each in settings], first, files)
    except OSError as error:  # For example a full disk. The error does not name the file.
        named = ((name, path) for name, path in paths.items() if path is not None)
        raise SimulationError("; ".join(_unwritable(*item, error) for item in named)) from None
    _print(options, settings, runs, first[0], first[1].total)


def _print(
    options: Namespace,
    settings: "Sequence[Settings]",
    runs: "Sequence[list[dict[str, float]]]",
    workload: "Workload",
    processors: int,
) -> None:
    """Print the metrics of one strategy, or compare several in a table; with ``--json`` as JSON."""
    from pliant.simulator import report

    labels = [each.label for each in settings]
    head = _head(options, workload, processors)
    if options.json:
        if len(settings) == 1:
            strategy = {"strategy": settings[0].strategy, "options": dict(settings[0].options)}
            print(report.as_json({**strategy, **head}, runs[0]))
        else:
            print(report.comparison_as_json(head, settings, runs))
        return
    print(
        f"{workload.name or options.workload}: {len(workload.jobs)} jobs on {processors} "
        f"processors, {', '.join(labels)}"
        + _skipped(workload)
        + (
            f", {options.replications} runs with 95 % confidence intervals"
            if options.replications > 1
            else ""
        )
    )
    if any(run["suspensions"] for each in runs for run in each):
        print(
            f"a suspension costs {options.checkpoint_cost} s to save and {options.restart_cost} s "
            "to resume"
        )
    malleable = head["malleable"]
    if isinstance(malleable, dict):
        print(
            "{percent:g} % of the jobs malleable: sizes {sizes}, speedup {speedup}".format(
                **malleable
            )
        )
    print("\n".join(report.comparison(labels, runs) if runs[1:] else report.summary(runs[0])))


def _skipped(workload: "Workload") -> str:
    """Return a text that counts the skipped records of a log by the kind of reason.

    It names the first line of each kind. It is empty if no record was skipped.
    """
    kinds = (
        f"{len(items)} {kind}, line {items[0].line}{' and on' if items[1:] else ''}"
        for kind, items in workload.skipped_by_kind().items()
    )
    number = len(workload.skipped)
    return f", {number} records skipped ({'; '.join(kinds)})" if number else ""


def _open(stack: contextlib.ExitStack, name: str, path: str | None) -> Any:
    """Open an output file before the simulation: in binary mode for a picture, else as text.

    If the command fails later, the file is removed, if it is new and still empty.

    Args:
        stack: closes the file at its end.
        name: the name of the option, which tells whether the file is a picture.
        path: the path; None if the option was not used, and then None is returned.
    """
    if path is None:
        return None
    if not os.path.exists(path):
        stack.push(lambda kind, *_: _clear_away(path) if kind else None)
    try:
        if name in _PICTURES:
            return stack.enter_context(open(path, "wb"))
        return stack.enter_context(open(path, "w", encoding="utf-8", newline=""))
    except OSError as error:
        raise SettingsError(_unwritable(name, path, error)) from None


def _clear_away(path: str) -> None:
    """Remove an output file if it is empty."""
    with contextlib.suppress(OSError):
        if os.path.getsize(path) == 0:
            os.remove(path)


def _refuse_one_file_twice(options: Namespace) -> None:
    """Check that no output file is also an input file or another output file."""
    seen: dict[str, str] = {}
    for name in (*_INPUTS, *_FILES):
        path = getattr(options, name)
        if path is None or path == os.devnull:
            continue
        if name in _INPUTS and not os.path.isfile(path):  # A model, or MTBF/MTTR.
            continue
        option, real = f"--{name.replace('_', '-')}", os.path.realpath(path)
        if real in seen and name in _FILES:
            raise SettingsError(f"{option} {path}: is also the file of {seen[real]}")
        seen[real] = option


def _unwritable(name: str, path: str, error: OSError) -> str:
    return f"--{name.replace('_', '-')} {path}: cannot be written: {error.strerror}"


def _require_matplotlib(options: Namespace) -> None:
    """Check, before the simulation, that matplotlib is installed if a picture needs it.

    A Gantt chart as SVG needs no other package.

    Raises:
        SettingsError: it is missing; the message names the option and the remedy.
    """
    from pliant.charts.output.files import missing_for
    from pliant.simulator.pictures.figure import can_draw

    if options.gantt is not None and (missing := missing_for(options.gantt)) is not None:
        raise SettingsError(f"--gantt {options.gantt}: {missing}")
    for name in _PLOTS:
        if getattr(options, name) is not None and not can_draw():
            raise SettingsError(
                f"--{name.replace('_', '-')}: pictures need matplotlib; install pliant[plots]"
            )


def _refuse_files_of_one(options: Namespace) -> None:
    """Refuse a file about a single run, if several strategies are simulated.

    Such files are the history, and pictures of one run.

    Raises:
        SettingsError: such a file was requested; the message names the option.
    """
    for name in ("events_out", "gantt", "utilization", "queue", "sizes_over_time"):
        if getattr(options, name) is not None:
            raise SettingsError(
                f"--{name.replace('_', '-')}: shows one strategy; name --strategy once"
            )


def _simulate(
    options: Namespace,
    settings: "Sequence[Settings]",
    files: dict[str, Any],
    recording: "Recording | None",
) -> "tuple[list[list[dict[str, float]]], tuple[Workload, Settings, Result]]":
    """Run all simulations.

    All strategies get the same jobs, and the same seeds for costs and answers. The history of the
    first run goes into ``recording`` and to the file for events.

    Returns:
        The metrics of all runs of each strategy. Then the workload, the settings and the result of
        the first run, from which pictures are drawn.
    """
    from pliant.simulator.report import write_jobs
    from pliant.simulator.run.simulate import simulate

    runs: list[list[dict[str, float]]] = [[] for _ in settings]
    tables, first, log = [], None, files["events_out"]
    machine = named_machine(options, settings[0])
    total = options.replications * len(settings)
    for seed in range(options.seed, options.seed + options.replications):
        workload = make_workload(options, seed, machine)
        for place, chosen in enumerate(settings):
            spans = chosen.keep_spans and first is None
            used = _with_processors(
                replace(chosen, seed=seed, keep_spans=spans), machine or workload.processors
            )
            number = (seed - options.seed) * len(settings) + place + 1
            watch = _ProgressReport(len(workload.jobs), number, total)
            history = _listener(log, recording)
            result = simulate(workload.jobs, used, on_note=history, progress=watch)
            watch.close()
            runs[place].append(dict(result.metrics))
            tables.append((chosen.label, seed, result.jobs))
            if first is None:
                first, log, recording = (workload, used, result), None, None
    assert first is not None
    if files["jobs_out"]:
        write_jobs(files["jobs_out"], tables)
    return runs, first


def _listener(
    file: TextIO | None, recording: "Recording | None"
) -> "Callable[[Note], None] | None":
    """Return a function that stores each line of the history; None if no output needs them."""
    from pliant.simulator.report import note_line

    if file is None and recording is None:
        return None

    def take(note: "Note") -> None:
        if file is not None:
            print(note_line(note), file=file)
        if recording is not None:
            recording.apply(note._asdict())

    return take


def _with_processors(settings: "Settings", machine: int | None) -> "Settings":
    """Return the settings with ``machine`` as the number of processors of the machine.

    Raises:
        SettingsError: ``machine`` is None, because neither options nor workload state the number.
    """
    if machine is None:
        raise SettingsError(
            "--processors: the workload does not state the number of processors; add this option"
        )
    return replace(settings, processors=machine)


def _draw(
    options: Namespace,
    runs: "Sequence[Sequence[dict[str, float]]]",
    labels: Sequence[str],
    first: "tuple[Workload, Settings, Result]",
    files: dict[str, Any],
) -> None:
    """Draw all requested plots; a plot of a single run shows the first run.

    Args:
        options: the options of the command line.
        runs: the metrics of the runs of each strategy.
        labels: the names of the strategies, for the plot that compares them.
        first: the workload, the settings and the result of the first run.
        files: the opened files, by the name of the option.
    """
    if not any(files[name] for name in _PLOTS):
        return
    from pliant.simulator.pictures.comparison import comparison
    from pliant.simulator.pictures.figure import encoded, format_of
    from pliant.simulator.pictures.over_time import queue_length, sizes, utilization

    _, used, result = first
    machine = _machine_title(first)
    title = f"{machine}, {used.label}"
    draw: dict[str, Callable[[], Figure]] = {
        "utilization": lambda: utilization(result.spans, used.total, title),
        "queue": lambda: queue_length(result.jobs, title),
        "sizes_over_time": lambda: sizes(result.spans, title),
        "comparison": lambda: comparison(labels, runs, machine),
    }
    for name in _PLOTS:
        file = files[name]
        if file is not None:
            file.write(encoded(draw[name](), format_of(getattr(options, name))))


def _machine_title(first: "tuple[Workload, Settings, Result]") -> str:
    workload, used, _ = first
    return f"{workload.name}, {len(workload.jobs)} jobs, {used.total} processors"


def _draw_gantt(
    options: Namespace,
    recording: "Recording",
    first: "tuple[Workload, Settings, Result]",
    file: Any,
) -> None:
    """Draw the allocations of the first run over time, as ``pliant gantt`` does."""
    from pliant.charts.output.files import encoded
    from pliant.charts.timeline import draw_timeline

    title = f"{_machine_title(first)}, {first[1].label}"
    file.write(encoded(draw_timeline(recording.timeline(title)), options.gantt))


def _head(options: Namespace, workload: "Workload", processors: int) -> dict[str, object]:
    """Return the part of the JSON output that does not depend on the strategy."""
    malleable: dict[str, object] | None = None
    if options.malleable is not None:
        sizes, speedup = malleable_rules(options)
        speedup = speedup or "as the workload says"
        malleable = {"percent": options.malleable, "sizes": sizes, "speedup": speedup}
    return {
        "workload": workload.name or options.workload,
        "processors": processors,
        "malleable": malleable,
        "seed": options.seed,
        "replications": options.replications,
        "checkpoint_cost": options.checkpoint_cost,
        "restart_cost": options.restart_cost,
        "priorities": options.priorities,
        "skipped": len(workload.skipped),
        "skipped_too_wide": workload.too_wide,
        "skipped_reasons": {
            kind: {"records": len(items), "line": items[0].line, "reason": items[0].reason}
            for kind, items in workload.skipped_by_kind().items()
        },
    }


class _ProgressReport:
    """Reports the progress of a long run on stderr."""

    def __init__(self, jobs: int, run: int, runs: int) -> None:
        self._jobs = jobs
        self._which = f"run {run} of {runs}, " if runs > 1 else ""
        self._terminal = sys.stderr.isatty()
        self._next = time.monotonic() + _FIRST_AFTER_S
        self._has_reported = False

    def __call__(self, ended: int, now: float) -> None:
        moment = time.monotonic()
        if moment < self._next:
            return
        self._next = moment + (_TERMINAL_S if self._terminal else _FILE_S)
        self._has_reported = True
        text = f"{PROG}: {self._which}{ended} of {self._jobs} jobs ended, {now:.0f} s simulated"
        sys.stderr.write(f"\r\x1b[K{text}" if self._terminal else f"{text}\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Clear the progress line if stderr is a terminal."""
        if self._has_reported and self._terminal:
            sys.stderr.write("\r\x1b[K")
